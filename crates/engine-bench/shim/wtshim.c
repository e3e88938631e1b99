/*
 * A flat interface over WiredTiger's structures of function pointers, whose layout differs between versions and which Rust
 * cannot call without repeating the header. Keys come as bytes; a table with numeric keys (format q) gets them as 8 bytes,
 * most significant first. Every function answers 0, WiredTiger's error code or an errno.
 *
 * A session and its cursors belong to one thread at a time; a database is shared by all.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>

#define WTS_TABLES 16

typedef struct {
    WT_CONNECTION *connection;
} wts_db;

typedef struct {
    WT_SESSION *session;
    WT_CURSOR *cursors[WTS_TABLES];
    WT_CURSOR *bulk;
} wts_session;

int wts_open(const char *home, const char *config, wts_db **out)
{
    wts_db *db = calloc(1, sizeof(*db));
    if (db == NULL)
        return ENOMEM;
    int ret = wiredtiger_open(home, NULL, config, &db->connection);
    if (ret != 0) {
        free(db);
        return ret;
    }
    *out = db;
    return 0;
}

int wts_close(wts_db *db)
{
    /* What the process holds in memory is given back by its end, as in mongod. */
    int ret = db->connection->close(db->connection, "leak_memory=true");
    free(db);
    return ret;
}

int wts_session_open(wts_db *db, wts_session **out)
{
    wts_session *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return ENOMEM;
    int ret = db->connection->open_session(db->connection, NULL, "isolation=snapshot", &s->session);
    if (ret != 0) {
        free(s);
        return ret;
    }
    *out = s;
    return 0;
}

int wts_session_close(wts_session *s)
{
    int ret = s->session->close(s->session, NULL);
    free(s);
    return ret;
}

static void table_uri(char *uri, size_t bytes, uint32_t table)
{
    snprintf(uri, bytes, "table:t%u", table);
}

int wts_create(wts_session *s, uint32_t table, const char *config)
{
    char uri[32];
    table_uri(uri, sizeof(uri), table);
    return s->session->create(s->session, uri, config);
}

int wts_begin(wts_session *s)
{
    return s->session->begin_transaction(s->session, NULL);
}

int wts_commit(wts_session *s, int sync)
{
    return s->session->commit_transaction(s->session, sync ? "sync=on" : NULL);
}

int wts_rollback(wts_session *s)
{
    return s->session->rollback_transaction(s->session, NULL);
}

static int table_cursor(wts_session *s, uint32_t table, WT_CURSOR **out)
{
    char uri[32];
    if (table >= WTS_TABLES)
        return EINVAL;
    if (s->cursors[table] == NULL) {
        table_uri(uri, sizeof(uri), table);
        int ret = s->session->open_cursor(s->session, uri, NULL, NULL, &s->cursors[table]);
        if (ret != 0)
            return ret;
    }
    *out = s->cursors[table];
    return 0;
}

static int set_key(WT_CURSOR *cursor, const uint8_t *key, size_t key_bytes)
{
    if (cursor->key_format[0] == 'q') {
        uint64_t number = 0;
        if (key_bytes != 8)
            return EINVAL;
        for (size_t i = 0; i < 8; i++)
            number = number << 8 | key[i];
        cursor->set_key(cursor, (int64_t)number);
    } else {
        WT_ITEM item = {0};
        item.data = key;
        item.size = key_bytes;
        cursor->set_key(cursor, &item);
    }
    return 0;
}

static void set_value(WT_CURSOR *cursor, const uint8_t *value, size_t value_bytes)
{
    WT_ITEM item = {0};
    item.data = value;
    item.size = value_bytes;
    cursor->set_value(cursor, &item);
}

/* Copies up to `capacity` bytes of the value and tells its whole length; WT_NOTFOUND when there is no such key. */
int wts_get(wts_session *s, uint32_t table, const uint8_t *key, size_t key_bytes, uint8_t *buffer, size_t capacity,
    size_t *value_bytes)
{
    WT_CURSOR *cursor;
    WT_ITEM item;
    int ret = table_cursor(s, table, &cursor);
    if (ret == 0)
        ret = set_key(cursor, key, key_bytes);
    if (ret == 0)
        ret = cursor->search(cursor);
    if (ret == 0)
        ret = cursor->get_value(cursor, &item);
    if (ret == 0) {
        *value_bytes = item.size;
        memcpy(buffer, item.data, item.size < capacity ? item.size : capacity);
        /* Lets go of the page. */
        ret = cursor->reset(cursor);
    }
    return ret;
}

int wts_put(wts_session *s, uint32_t table, const uint8_t *key, size_t key_bytes, const uint8_t *value,
    size_t value_bytes)
{
    WT_CURSOR *cursor;
    int ret = table_cursor(s, table, &cursor);
    if (ret == 0)
        ret = set_key(cursor, key, key_bytes);
    if (ret == 0) {
        set_value(cursor, value, value_bytes);
        ret = cursor->insert(cursor);
    }
    return ret;
}

int wts_delete(wts_session *s, uint32_t table, const uint8_t *key, size_t key_bytes)
{
    WT_CURSOR *cursor;
    int ret = table_cursor(s, table, &cursor);
    if (ret == 0)
        ret = set_key(cursor, key, key_bytes);
    if (ret == 0)
        ret = cursor->remove(cursor);
    return ret == WT_NOTFOUND ? 0 : ret;
}

/* Walks a whole table: rows, bytes of values, and the sum of their first bytes, so that values are touched. */
int wts_scan(wts_session *s, uint32_t table, uint64_t *rows, uint64_t *bytes, uint64_t *sum)
{
    WT_CURSOR *cursor;
    WT_ITEM key, value;
    int64_t number;
    int ret = table_cursor(s, table, &cursor);
    if (ret == 0)
        ret = cursor->reset(cursor);
    while (ret == 0 && (ret = cursor->next(cursor)) == 0) {
        if (cursor->key_format[0] == 'q')
            ret = cursor->get_key(cursor, &number);
        else
            ret = cursor->get_key(cursor, &key);
        if (ret == 0)
            ret = cursor->get_value(cursor, &value);
        if (ret == 0) {
            *rows += 1;
            *bytes += value.size;
            if (value.size > 0)
                *sum += *(const uint8_t *)value.data;
        }
    }
    return ret == WT_NOTFOUND ? 0 : ret;
}

int wts_bulk_open(wts_session *s, uint32_t table)
{
    char uri[32];
    if (s->bulk != NULL)
        return EBUSY;
    table_uri(uri, sizeof(uri), table);
    return s->session->open_cursor(s->session, uri, NULL, "bulk", &s->bulk);
}

int wts_bulk_put(wts_session *s, const uint8_t *key, size_t key_bytes, const uint8_t *value, size_t value_bytes)
{
    if (s->bulk == NULL)
        return EINVAL;
    int ret = set_key(s->bulk, key, key_bytes);
    if (ret == 0) {
        set_value(s->bulk, value, value_bytes);
        ret = s->bulk->insert(s->bulk);
    }
    return ret;
}

int wts_bulk_close(wts_session *s)
{
    WT_CURSOR *bulk = s->bulk;
    if (bulk == NULL)
        return EINVAL;
    s->bulk = NULL;
    return bulk->close(bulk);
}

int wts_checkpoint(wts_session *s)
{
    return s->session->checkpoint(s->session, NULL);
}

int wts_log_flush(wts_session *s)
{
    return s->session->log_flush(s->session, "sync=on");
}

/* The figures that the driver asks for: bytes written to the log, syncs, blocks read. */
int wts_statistics(wts_session *s, uint64_t values[3])
{
    static const int keys[3] = {
        WT_STAT_CONN_LOG_BYTES_WRITTEN, WT_STAT_CONN_FSYNC_IO, WT_STAT_CONN_BLOCK_READ};
    WT_CURSOR *cursor;
    const char *description, *text;
    int ret = s->session->open_cursor(s->session, "statistics:", NULL, NULL, &cursor);
    if (ret != 0)
        return ret;
    for (int i = 0; i < 3 && ret == 0; i++) {
        int64_t value = 0;
        cursor->set_key(cursor, keys[i]);
        if ((ret = cursor->search(cursor)) == 0)
            ret = cursor->get_value(cursor, &description, &text, &value);
        values[i] = (uint64_t)value;
    }
    int closed = cursor->close(cursor);
    return ret != 0 ? ret : closed;
}

int wts_is_conflict(int code)
{
    return code == WT_ROLLBACK;
}

int wts_is_not_found(int code)
{
    return code == WT_NOTFOUND;
}

const char *wts_error_text(int code)
{
    return wiredtiger_strerror(code);
}

const char *wts_version(void)
{
    return wiredtiger_version(NULL, NULL, NULL);
}
