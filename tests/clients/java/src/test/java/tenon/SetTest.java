package tenon;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.changestream.FullDocument;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What the Java driver does with the replica set at TENON_SET_URI, which has enableTestCommands. */
@EnabledIfEnvironmentVariable(named = "TENON_SET_URI", matches = ".+")
class SetTest {
    private MongoClient client;
    private MongoDatabase database;

    @BeforeEach
    void connect() {
        client = MongoClients.create(System.getenv("TENON_SET_URI"));
        database = client.getDatabase("t_java_set");
        database.drop();
    }

    @AfterEach
    void close() {
        database.drop();
        client.close();
    }

    @Test
    void transactionsAreAllOrNothingAndTriedAgain() throws Exception {
        MongoCollection<Document> accounts = database.getCollection("accounts");
        accounts.insertMany(List.of(new Document("_id", 0).append("n", 0), new Document("_id", 1).append("n", 0)));
        try (ClientSession session = client.startSession()) {
            session.startTransaction();
            accounts.updateOne(session, Filters.eq(0), Updates.inc("n", 5));
            assertEquals(5, accounts.find(session, Filters.eq(0)).first().getInteger("n"));
            session.abortTransaction();
        }
        var pool = Executors.newFixedThreadPool(8);
        try {
            List<Callable<Void>> work = new ArrayList<>();
            for (int turn = 0; turn < 40; turn++) {
                int first = turn % 2;
                work.add(() -> {
                    try (ClientSession session = client.startSession()) {
                        session.withTransaction(() -> {
                            accounts.updateOne(session, Filters.eq(first), Updates.inc("n", 1));
                            return accounts.updateOne(session, Filters.eq(1 - first), Updates.inc("n", 1));
                        });
                    }
                    return null;
                });
            }
            for (var done : pool.invokeAll(work)) {
                done.get();
            }
        } finally {
            pool.shutdown();
        }
        for (Document account : accounts.find()) {
            assertEquals(40, account.getInteger("n"));
        }
    }

    @Test
    void aWriteWhoseReplyIsLostIsDoneOnce() {
        MongoCollection<Document> retried = database.getCollection("retried");
        retried.insertOne(new Document("_id", 1).append("n", 0));
        MongoDatabase admin = client.getDatabase("admin");
        admin.runCommand(Document.parse(
                "{configureFailPoint: 'failCommand', mode: {times: 1}, data: {failCommands: ['update'], closeConnection: true}}"));
        retried.updateOne(Filters.eq(1), Updates.inc("n", 1));
        admin.runCommand(Document.parse(
                "{configureFailPoint: 'failCommand', mode: {times: 1}, data: {failCommands: ['insert'], errorCode: 6, errorLabels: ['RetryableWriteError']}}"));
        retried.insertOne(new Document("_id", 2));
        assertEquals(1, retried.find(Filters.eq(1)).first().getInteger("n"));
        assertEquals(2, retried.countDocuments());
        admin.runCommand(Document.parse(
                "{configureFailPoint: 'failCommand', mode: {times: 2}, data: {failCommands: ['find'], errorCode: 6}}"));
        assertThrows(com.mongodb.MongoCommandException.class, () -> retried.find().first());
        admin.runCommand(Document.parse("{configureFailPoint: 'failCommand', mode: 'off'}"));
    }

    @Test
    void aChangeStreamTellsWhatHappened() {
        MongoCollection<Document> watched = database.getCollection("watched");
        watched.insertOne(new Document("_id", 0));
        List<String> told = new ArrayList<>();
        try (var cursor = watched.watch().fullDocument(FullDocument.UPDATE_LOOKUP).cursor()) {
            watched.updateOne(Filters.eq(0), Updates.set("a", 1));
            try (ClientSession session = client.startSession()) {
                session.withTransaction(() -> {
                    watched.insertOne(session, new Document("_id", 1));
                    return watched.deleteOne(session, Filters.eq(0)).getDeletedCount();
                });
            }
            for (int n = 0; n < 3; n++) {
                told.add(cursor.next().getOperationType().getValue());
            }
        }
        assertEquals(List.of("update", "insert", "delete"), told);
    }
}
