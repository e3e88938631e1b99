package tenon;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ConnectionString;
import com.mongodb.ErrorCategory;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCompressor;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.bson.types.Decimal128;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The Java driver against a running server at TENON_URI. */
class DriverTest {
    private static final String URI = System.getenv("TENON_URI");
    private MongoClient client;
    private MongoDatabase database;

    @BeforeEach
    void connect() {
        client = MongoClients.create(URI);
        database = client.getDatabase("t_java");
        database.drop();
    }

    @AfterEach
    void close() {
        database.drop();
        client.close();
    }

    @Test
    void documentsComeBackAsTheyWent() {
        MongoCollection<Document> collection = database.getCollection("crud");
        Document document = new Document("_id", 1L).append("dec", Decimal128.parse("1.10")).append("list", List.of(1, "two"));
        collection.insertOne(document);
        assertEquals(document, collection.find(Filters.eq("_id", 1)).first());
        assertEquals(1, collection.updateOne(Filters.eq(1L), Updates.push("list", 3)).getModifiedCount());
        assertEquals(List.of(1, "two", 3), collection.find().first().getList("list", Object.class));
        assertEquals(1, collection.deleteMany(new Document()).getDeletedCount());
    }

    @Test
    void bulkWritesAndDuplicates() {
        MongoCollection<Document> collection = database.getCollection("bulk");
        var result = collection.bulkWrite(List.of(
                new InsertOneModel<>(new Document("_id", 1)),
                new UpdateOneModel<>(Filters.eq(1), Updates.set("a", 1))));
        assertEquals(1, result.getInsertedCount());
        assertEquals(1, result.getModifiedCount());
        var duplicate = assertThrows(MongoWriteException.class, () -> collection.insertOne(new Document("_id", 1)));
        assertEquals(ErrorCategory.DUPLICATE_KEY, duplicate.getError().getCategory());
        assertThrows(MongoBulkWriteException.class,
                () -> collection.insertMany(List.of(new Document("_id", 2), new Document("_id", 2))));
        assertEquals(2, collection.countDocuments());
    }

    @Test
    void cursorsAndIndexes() {
        MongoCollection<Document> collection = database.getCollection("many");
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < 3000; i++) {
            documents.add(new Document("_id", i).append("a", i % 10));
        }
        collection.insertMany(documents);
        assertEquals("a_1", collection.createIndex(Indexes.ascending("a")));
        assertEquals(300, collection.find(Filters.eq("a", 3)).batchSize(50).into(new ArrayList<>()).size());
        assertTrue(collection.find(Filters.eq("a", 3)).explain().toJson().contains("IXSCAN"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"snappy", "zlib", "zstd"})
    void compression(String name) {
        MongoCompressor compressor = switch (name) {
            case "snappy" -> MongoCompressor.createSnappyCompressor();
            case "zlib" -> MongoCompressor.createZlibCompressor();
            default -> MongoCompressor.createZstdCompressor();
        };
        MongoClientSettings settings = MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(URI))
                .compressorList(List.of(compressor))
                .build();
        try (MongoClient compressed = MongoClients.create(settings)) {
            MongoCollection<Document> collection = compressed.getDatabase("t_java").getCollection("compressed");
            collection.insertOne(new Document("_id", name).append("pad", "z".repeat(100_000)));
            assertEquals(100_000, collection.find(Filters.eq(name)).first().getString("pad").length());
        }
    }
}
