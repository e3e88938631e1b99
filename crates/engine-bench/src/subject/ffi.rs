//! The shim over WiredTiger's C interface (`shim/wtshim.c`), behind safe types: the one module with `unsafe`.
//!
//! A [`Database`] is WiredTiger's connection: shared by all threads. A [`Handle`] is a session with its cursors: one
//! thread at a time. A handle keeps its database open, so no pointer outlives what it points into.

#![allow(unsafe_code, reason = "calls into a C library")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

#[repr(C)]
struct RawDatabase {
    _private: [u8; 0],
}

#[repr(C)]
struct RawSession {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn wts_open(home: *const c_char, config: *const c_char, out: *mut *mut RawDatabase) -> c_int;
    fn wts_close(db: *mut RawDatabase) -> c_int;
    fn wts_session_open(db: *mut RawDatabase, out: *mut *mut RawSession) -> c_int;
    fn wts_session_close(s: *mut RawSession) -> c_int;
    fn wts_create(s: *mut RawSession, table: u32, config: *const c_char) -> c_int;
    fn wts_begin(s: *mut RawSession) -> c_int;
    fn wts_commit(s: *mut RawSession, sync: c_int) -> c_int;
    fn wts_rollback(s: *mut RawSession) -> c_int;
    fn wts_get(
        s: *mut RawSession,
        table: u32,
        key: *const u8,
        key_bytes: usize,
        buffer: *mut u8,
        capacity: usize,
        value_bytes: *mut usize,
    ) -> c_int;
    fn wts_put(
        s: *mut RawSession,
        table: u32,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    ) -> c_int;
    fn wts_delete(s: *mut RawSession, table: u32, key: *const u8, key_bytes: usize) -> c_int;
    fn wts_scan(s: *mut RawSession, table: u32, rows: *mut u64, bytes: *mut u64, sum: *mut u64) -> c_int;
    fn wts_bulk_open(s: *mut RawSession, table: u32) -> c_int;
    fn wts_bulk_put(
        s: *mut RawSession,
        key: *const u8,
        key_bytes: usize,
        value: *const u8,
        value_bytes: usize,
    ) -> c_int;
    fn wts_bulk_close(s: *mut RawSession) -> c_int;
    fn wts_checkpoint(s: *mut RawSession) -> c_int;
    fn wts_log_flush(s: *mut RawSession) -> c_int;
    fn wts_statistics(s: *mut RawSession, values: *mut [u64; 3]) -> c_int;
    fn wts_is_conflict(code: c_int) -> c_int;
    fn wts_is_not_found(code: c_int) -> c_int;
    fn wts_error_text(code: c_int) -> *const c_char;
    fn wts_version() -> *const c_char;
}

/// An error code of WiredTiger, or of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(c_int);

impl Code {
    /// The transaction lost against another and can be tried again.
    pub fn is_conflict(self) -> bool {
        // SAFETY: a comparison of numbers.
        unsafe { wts_is_conflict(self.0) != 0 }
    }

    fn is_not_found(self) -> bool {
        // SAFETY: a comparison of numbers.
        unsafe { wts_is_not_found(self.0) != 0 }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: WiredTiger answers a string that ends with zero, its own or a static one of the C library.
        let text = unsafe { CStr::from_ptr(wts_error_text(self.0)) };
        write!(f, "WiredTiger: {} ({})", text.to_string_lossy(), self.0)
    }
}

impl std::error::Error for Code {}

type Result<T> = std::result::Result<T, Code>;

const INVALID_ARGUMENT: Code = Code(22);

fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| INVALID_ARGUMENT)
}

/// The library's name and version.
pub(super) fn version() -> String {
    // SAFETY: WiredTiger answers a static string that ends with zero.
    let text = unsafe { CStr::from_ptr(wts_version()) };
    text.to_string_lossy().into_owned()
}

/// An open database; closed, with a last checkpoint, when the last user lets go of it.
pub(super) struct Database {
    raw: NonNull<RawDatabase>,
}

// SAFETY: a WT_CONNECTION may be used from any thread ("connection handles are thread-safe", WiredTiger's documentation
// on multithreading), and the shim keeps nothing else in it that changes.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Opens or creates a database in an existing folder; replays its log.
    pub fn open(home: &str, config: &str) -> Result<Arc<Self>> {
        let (home, config) = (c_string(home)?, c_string(config)?);
        let mut raw = std::ptr::null_mut();
        // SAFETY: both strings end with zero and live during the call; `raw` is written on success.
        check(unsafe { wts_open(home.as_ptr(), config.as_ptr(), &mut raw) })?;
        let raw = NonNull::new(raw).ok_or(INVALID_ARGUMENT)?;
        Ok(Arc::new(Self { raw }))
    }

    /// A new session.
    pub fn session(self: &Arc<Self>) -> Result<Handle> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `self.raw` is open until `self` is dropped; `raw` is written on success.
        check(unsafe { wts_session_open(self.raw.as_ptr(), &mut raw) })?;
        Ok(Handle {
            raw: NonNull::new(raw).ok_or(INVALID_ARGUMENT)?,
            _database: self.clone(),
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: handles hold an `Arc` of `self`, so none is left; nobody closes it a second time.
        let code = unsafe { wts_close(self.raw.as_ptr()) };
        if let Err(code) = check(code) {
            eprintln!("closing the database: {code}");
        }
    }
}

/// A session and its cursors.
pub(super) struct Handle {
    raw: NonNull<RawSession>,
    _database: Arc<Database>,
}

// SAFETY: a WT_SESSION may move between threads as long as one at a time uses it, which `&mut self` everywhere ensures.
unsafe impl Send for Handle {}

// SAFETY (of all calls below): `self.raw` is open until `self` is dropped, and `&mut self` makes this the only user.
// Slices are handed over as pointer and length and are not kept after the call, except by WiredTiger's cursors, which
// read a key or value that was set only within the same shim function.
impl Handle {
    /// Creates a table with a configuration in WiredTiger's words.
    pub fn create(&mut self, table: u32, config: &str) -> Result<()> {
        let config = c_string(config)?;
        // SAFETY: see above; the string ends with zero and lives during the call.
        check(unsafe { wts_create(self.raw.as_ptr(), table, config.as_ptr()) })
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_begin(self.raw.as_ptr()) })
    }

    /// Commits; with `sync` it is on disk on return.
    pub fn commit(&mut self, sync: bool) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_commit(self.raw.as_ptr(), c_int::from(sync)) })
    }

    /// Gives the transaction up.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_rollback(self.raw.as_ptr()) })
    }

    /// Puts the value of a key into `value`; false when there is none.
    pub fn get(&mut self, table: u32, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        loop {
            let mut value_bytes = 0;
            value.resize(value.capacity().max(64), 0);
            // SAFETY: see above; at most `value.len()` bytes are written to `value`.
            let code = unsafe {
                wts_get(
                    self.raw.as_ptr(),
                    table,
                    key.as_ptr(),
                    key.len(),
                    value.as_mut_ptr(),
                    value.len(),
                    &mut value_bytes,
                )
            };
            match check(code) {
                Err(code) if code.is_not_found() => {
                    value.clear();
                    return Ok(false);
                }
                result => result?,
            }
            if value_bytes <= value.len() {
                value.truncate(value_bytes);
                return Ok(true);
            }
            value.reserve(value_bytes);
        }
    }

    /// Sets a key.
    pub fn put(&mut self, table: u32, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: see above.
        check(unsafe {
            wts_put(
                self.raw.as_ptr(),
                table,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
            )
        })
    }

    /// Removes a key; a missing one is fine.
    pub fn delete(&mut self, table: u32, key: &[u8]) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_delete(self.raw.as_ptr(), table, key.as_ptr(), key.len()) })
    }

    /// Rows of a table, bytes of their values, and the sum of the values' first bytes.
    pub fn scan(&mut self, table: u32) -> Result<(u64, u64, u64)> {
        let (mut rows, mut bytes, mut sum) = (0, 0, 0);
        // SAFETY: see above; the three numbers live during the call.
        check(unsafe { wts_scan(self.raw.as_ptr(), table, &mut rows, &mut bytes, &mut sum) })?;
        Ok((rows, bytes, sum))
    }

    /// Fills an empty table from rising keys.
    pub fn bulk_load(&mut self, table: u32, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        // SAFETY: see above.
        check(unsafe { wts_bulk_open(self.raw.as_ptr(), table) })?;
        let mut loaded = 0;
        let mut result = Ok(());
        for (key, value) in rows {
            // SAFETY: see above.
            result =
                check(unsafe { wts_bulk_put(self.raw.as_ptr(), key.as_ptr(), key.len(), value.as_ptr(), value.len()) });
            if result.is_err() {
                break;
            }
            loaded += 1;
        }
        // SAFETY: see above; also after an error, so that the cursor is not left open.
        let closed = check(unsafe { wts_bulk_close(self.raw.as_ptr()) });
        result.and(closed).map(|()| loaded)
    }

    /// Takes a checkpoint of everything.
    pub fn checkpoint(&mut self) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_checkpoint(self.raw.as_ptr()) })
    }

    /// Brings the log to disk.
    pub fn log_flush(&mut self) -> Result<()> {
        // SAFETY: see above.
        check(unsafe { wts_log_flush(self.raw.as_ptr()) })
    }

    /// Bytes written to the log, syncs of all files, and blocks read, since the database was opened.
    pub fn statistics(&mut self) -> Result<[u64; 3]> {
        let mut values = [0; 3];
        // SAFETY: see above; the numbers live during the call, and are as many as the callee writes.
        check(unsafe { wts_statistics(self.raw.as_ptr(), &mut values) })?;
        Ok(values)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the session is open, this is its only user, and its database is kept open by `_database`. WiredTiger
        // rolls back a transaction that is open.
        let code = unsafe { wts_session_close(self.raw.as_ptr()) };
        if let Err(code) = check(code) {
            eprintln!("closing a session: {code}");
        }
    }
}
