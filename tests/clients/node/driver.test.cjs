"use strict";
// The Node driver against a running server at TENON_URI.
const assert = require("node:assert");
const { test, before, after } = require("node:test");
const { MongoClient, ObjectId, Long, Decimal128 } = require("mongodb");

const uri = process.env.TENON_URI;
let client, db;

before(async () => {
  client = await new MongoClient(uri).connect();
  db = client.db("t_node");
  await db.dropDatabase();
});
after(async () => {
  await db.dropDatabase();
  await client.close();
});

test("documents come back as they went", async () => {
  const c = db.collection("crud");
  const document = { _id: new ObjectId(), n: 1, long: Long.fromString("9007199254740993"), dec: Decimal128.fromString("1.10"), when: new Date(5), list: [1, { a: null }] };
  await c.insertOne(document);
  const found = await c.findOne({ _id: document._id }, { promoteLongs: false });
  assert.strictEqual(found.long.toString(), "9007199254740993");
  assert.strictEqual(found.dec.toString(), "1.10");
  assert.deepStrictEqual(found.list, document.list.map((v) => (typeof v === "number" ? found.list[0] : v)));
  assert.strictEqual((await c.updateOne({ n: 1 }, { $set: { n: 2 } })).modifiedCount, 1);
  assert.strictEqual((await c.deleteMany({})).deletedCount, 1);
});

test("bulk writes and their errors", async () => {
  const c = db.collection("bulk");
  const result = await c.bulkWrite([
    { insertOne: { document: { _id: 1 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } },
    { replaceOne: { filter: { _id: 2 }, replacement: { b: 1 }, upsert: true } },
    { deleteOne: { filter: { _id: 1 } } },
  ]);
  assert.deepStrictEqual([result.insertedCount, result.modifiedCount, result.upsertedCount, result.deletedCount], [1, 1, 1, 1]);
  await assert.rejects(c.insertMany([{ _id: 5 }, { _id: 5 }, { _id: 6 }]), (error) => error.code === 11000 && error.result.insertedCount === 1);
});

test("cursors go on over many batches", async () => {
  const c = db.collection("many");
  await c.insertMany(Array.from({ length: 5000 }, (_, i) => ({ _id: i })));
  let seen = 0;
  for await (const document of c.find({}, { batchSize: 100 }).sort({ _id: 1 })) assert.strictEqual(document._id, seen++);
  assert.strictEqual(seen, 5000);
  assert.strictEqual(await c.estimatedDocumentCount(), 5000);
});

test("indexes and explain", async () => {
  const c = db.collection("indexed");
  await c.insertMany([{ a: 1 }, { a: 2 }]);
  assert.strictEqual(await c.createIndex({ a: 1 }, { unique: true }), "a_1");
  await assert.rejects(c.insertOne({ a: 1 }), { code: 11000 });
  const plan = await c.find({ a: 1 }).explain();
  assert.strictEqual(plan.queryPlanner.winningPlan.inputStage.stage, "IXSCAN");
});

for (const compressor of ["snappy", "zlib"]) {
  test(`compression ${compressor}`, async () => {
    const other = await new MongoClient(uri, { compressors: [compressor] }).connect();
    const c = other.db("t_node").collection("compressed_" + compressor);
    await c.insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i, pad: "z".repeat(2000) })));
    assert.strictEqual((await c.find().toArray()).length, 500);
    await other.close();
  });
}
