// Run by mongosh: the helpers people type, with their results checked.
const assert = require("assert");
db.dropDatabase();
assert.strictEqual(db.c.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: 2 }, { _id: 3, a: 2 }]).insertedIds[2], 3);
assert.strictEqual(db.c.find({ a: 2 }).toArray().length, 2);
assert.strictEqual(db.c.countDocuments({ a: 2 }), 2);
assert.strictEqual(db.c.updateMany({ a: 2 }, { $inc: { a: 1 } }).modifiedCount, 2);
assert.strictEqual(JSON.stringify(db.c.distinct("a").sort()), "[1,3]");
assert.strictEqual(db.c.createIndex({ a: 1 }), "a_1");
assert.strictEqual(db.c.getIndexes().length, 2);
assert.strictEqual(db.c.find({ a: 3 }).explain().queryPlanner.winningPlan.inputStage.stage, "IXSCAN");
assert.strictEqual(db.c.aggregate([{ $group: { _id: null, sum: { $sum: "$a" } } }]).toArray()[0].sum, 7);
assert.strictEqual(db.c.stats().count, 3);
assert.strictEqual(db.c.validate().valid, true);
assert.strictEqual(db.c.deleteOne({ _id: 1 }).deletedCount, 1);
assert.ok(db.getCollectionNames().includes("c"));
assert.ok(db.adminCommand({ listDatabases: 1 }).databases.some((d) => d.name === db.getName()));
assert.ok(db.serverStatus().ok && db.hostInfo().ok && db.serverBuildInfo().ok && db.hello().ok);
assert.ok(Array.isArray(db.currentOp().inprog));
db.createCollection("capped", { capped: true, size: 4096 });
assert.strictEqual(db.capped.isCapped(), true);
try {
  db.c.insertOne({ _id: 2 });
  assert.fail("a duplicate was accepted");
} catch (error) {
  assert.strictEqual(error.code, 11000);
}
db.c.insert({ old: true }); // the book's spelling
assert.strictEqual(db.c.find().count(), 3);
assert.strictEqual(db.dropDatabase().ok, 1);
print("shell checks passed");
