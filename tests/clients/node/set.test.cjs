"use strict";
// What the Node driver, mongoose and an ORM do with a replica set: transactions, retries, change streams. TENON_URI names the set;
// the server has enableTestCommands.
const assert = require("node:assert");
const { test, before, after } = require("node:test");
const { MongoClient } = require("mongodb");
const mongoose = require("mongoose");
const { MikroORM, EntitySchema, OptimisticLockError, UniqueConstraintViolationException } = require("@mikro-orm/mongodb");

const uri = process.env.TENON_URI;
let client, db;

before(async () => {
  client = await new MongoClient(uri).connect();
  db = client.db("t_set");
  await db.dropDatabase();
});
after(async () => {
  await db.dropDatabase();
  await client.close();
});

async function failing(data, mode, work) {
  await client.db("admin").command({ configureFailPoint: "failCommand", mode, data });
  try {
    return await work();
  } finally {
    await client.db("admin").command({ configureFailPoint: "failCommand", mode: "off" });
  }
}

test("a transaction is all or nothing", async () => {
  const accounts = db.collection("accounts");
  await accounts.insertMany([{ _id: "a", amount: 10 }, { _id: "b", amount: 0 }]);
  const move = (amount) =>
    client.withSession((session) =>
      session.withTransaction(async () => {
        await accounts.updateOne({ _id: "a" }, { $inc: { amount: -amount } }, { session });
        await accounts.updateOne({ _id: "b" }, { $inc: { amount } }, { session });
        assert.strictEqual((await accounts.findOne({ _id: "b" }, { session })).amount, (await accounts.findOne({ _id: "b" })).amount + amount);
        if ((await accounts.findOne({ _id: "a" }, { session })).amount < 0) throw new Error("too much");
      }));
  await move(4);
  await assert.rejects(move(7), /too much/);
  assert.deepStrictEqual((await accounts.find().sort({ _id: 1 }).toArray()).map((account) => account.amount), [6, 4]);
});

test("transactions that meet are tried again", async () => {
  const counters = db.collection("counters");
  await counters.insertMany([{ _id: 0, n: 0 }, { _id: 1, n: 0 }]);
  const work = (turn) =>
    client.withSession((session) =>
      session.withTransaction(async () => {
        for (const id of turn % 2 ? [0, 1] : [1, 0]) await counters.updateOne({ _id: id }, { $inc: { n: 1 } }, { session });
      }));
  await Promise.all([...Array(20).keys()].map(work));
  assert.deepStrictEqual((await counters.find().toArray()).map((counter) => counter.n), [20, 20]);
});

test("a write whose reply is lost is done once", async () => {
  const retried = db.collection("retried");
  await retried.insertOne({ _id: 1, n: 0 });
  await failing({ failCommands: ["update", "findAndModify"], closeConnection: true }, { times: 1 }, () => retried.updateOne({ _id: 1 }, { $inc: { n: 1 } }));
  const before = await failing({ failCommands: ["findAndModify"], errorCode: 10107, errorLabels: ["RetryableWriteError"] }, { times: 1 },
    () => retried.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }));
  assert.strictEqual(before.n, 1);
  assert.strictEqual((await retried.findOne({ _id: 1 })).n, 2);
  // The commit of a transaction is sent again, too.
  await failing({ failCommands: ["commitTransaction"], closeConnection: true }, { times: 1 }, () =>
    client.withSession((session) => session.withTransaction(() => retried.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session }))));
  assert.strictEqual((await retried.findOne({ _id: 1 })).n, 3);
});

test("a change stream goes on after an error, and by its token", async () => {
  const watched = db.collection("watched");
  await watched.insertOne({ _id: 0 });
  const stream = watched.watch([{ $match: { operationType: { $ne: "delete" } } }], { fullDocument: "updateLookup" });
  // Else the insert may come to the server first.
  await stream.tryNext();
  const first = stream.next();
  await watched.insertOne({ _id: 1 });
  const token = (await first)._id;
  await watched.updateOne({ _id: 1 }, { $set: { a: 1 } });
  await watched.deleteOne({ _id: 0 });
  await watched.insertOne({ _id: 2 });
  await failing({ failCommands: ["getMore"], errorCode: 91, errorLabels: ["ResumableChangeStreamError"] }, { times: 1 }, async () => {
    const update = await stream.next();
    assert.deepStrictEqual([update.operationType, update.fullDocument], ["update", { _id: 1, a: 1 }]);
    assert.deepStrictEqual((await stream.next()).documentKey, { _id: 2 });
  });
  await stream.close();
  const later = watched.watch([], { resumeAfter: token });
  const events = [];
  for (let n = 0; n < 3; n++) events.push((await later.next()).operationType);
  await later.close();
  assert.deepStrictEqual(events, ["update", "delete", "insert"]);
});

test("a causally consistent session reads its writes at a snapshot", async () => {
  const read = db.collection("snapshot");
  await read.insertOne({ _id: 1, v: 1 });
  await client.withSession({ snapshot: true }, async (session) => {
    assert.strictEqual((await read.findOne({}, { session })).v, 1);
    await read.updateOne({ _id: 1 }, { $set: { v: 2 } });
    assert.strictEqual((await read.findOne({}, { session })).v, 1);
  });
  await client.withSession({ causalConsistency: true }, async (session) => {
    await read.updateOne({ _id: 1 }, { $set: { v: 3 } }, { session, writeConcern: { w: "majority" } });
    assert.strictEqual((await read.findOne({}, { session, readConcern: { level: "majority" } })).v, 3);
  });
});

test("mongoose: models, transactions and streams", async () => {
  const connection = await mongoose.createConnection(uri, { dbName: "t_set_mongoose" }).asPromise();
  await connection.dropDatabase();
  const Account = connection.model("Account", new mongoose.Schema({ owner: { type: String, unique: true }, amount: { type: Number, min: 0 } }, { optimisticConcurrency: true, timestamps: true }));
  const Entry = connection.model("Entry", new mongoose.Schema({ account: { type: mongoose.Schema.Types.ObjectId, ref: "Account" }, change: Number }));
  await Account.init();
  await Account.createCollection();
  const [ann, bob] = await Account.create([{ owner: "ann", amount: 10 }, { owner: "bob", amount: 0 }]);
  const seen = [];
  const stream = Entry.watch([{ $match: { operationType: "insert" } }]);
  let isOpen = false;
  stream.on("change", ({ fullDocument: { change } }) => (change === 0 ? (isOpen = true) : seen.push(change)));
  // It is "ready" before the server has heard of it.
  for (; !isOpen; await new Promise((resolve) => setTimeout(resolve, 10))) await Entry.create({ change: 0 });
  await Entry.deleteMany({});

  const move = async (amount) =>
    connection.transaction(async (session) => {
      for (const [account, change] of [[ann, -amount], [bob, amount]]) {
        const found = await Account.findById(account._id).session(session);
        found.amount += change;
        await found.save({ session });
        await Entry.create([{ account: account._id, change }], { session });
      }
    });
  await move(3);
  await assert.rejects(move(20), mongoose.Error.ValidationError);
  assert.deepStrictEqual((await Account.find().sort("owner")).map((account) => account.amount), [7, 3]);
  const entries = await Entry.find().sort("change").populate("account");
  assert.deepStrictEqual(entries.map((entry) => [entry.account.owner, entry.change]), [["ann", -3], ["bob", 3]]);
  await assert.rejects(Account.create({ owner: "ann", amount: 1 }), { code: 11000 });

  const stale = await Account.findById(bob._id);
  await Account.updateOne({ _id: bob._id }, { $inc: { __v: 1 } });
  stale.amount = 100;
  await assert.rejects(stale.save(), mongoose.Error.VersionError);
  while (seen.length < 2) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepStrictEqual(seen, [-3, 3]);
  await stream.close();
  await connection.dropDatabase();
  await connection.close();
});

test("MikroORM: units of work are transactions", async () => {
  const Author = new EntitySchema({
    name: "Author",
    properties: {
      _id: { type: "ObjectId", primary: true },
      name: { type: "string", unique: true },
      version: { type: "number", version: true },
      books: { kind: "1:m", entity: () => "Book", mappedBy: "author", cascade: ["persist", "remove"] },
    },
  });
  const Book = new EntitySchema({
    name: "Book",
    properties: {
      _id: { type: "ObjectId", primary: true },
      title: { type: "string", index: true },
      pages: { type: "number", default: 0 },
      author: { kind: "m:1", entity: () => "Author" },
    },
  });
  const orm = await MikroORM.init({
    clientUrl: uri, dbName: "t_set_orm", entities: [Author, Book], implicitTransactions: true, ensureIndexes: true, discovery: { warnWhenNoEntities: false },
  });
  await orm.schema.refreshDatabase();
  let em = orm.em.fork();
  for (const name of ["Ann", "Bob"]) {
    const author = em.create("Author", { name, version: 1 });
    for (let n = 1; n <= 3; n++) author.books.add(em.create("Book", { title: `${name} ${n}`, pages: n * 10, author }));
    em.persist(author);
  }
  await em.flush();

  // A unit of work of which a part fails leaves nothing.
  em = orm.em.fork();
  em.persist(em.create("Book", { title: "lost", author: await em.findOneOrFail("Author", { name: "Ann" }) }));
  em.persist(em.create("Author", { name: "Bob", version: 1 }));
  await assert.rejects(em.flush(), UniqueConstraintViolationException);
  em = orm.em.fork();
  assert.strictEqual(await em.count("Book"), 6);

  await assert.rejects(em.transactional(async (inner) => {
    await inner.nativeUpdate("Book", { title: { $re: "^Ann" } }, { pages: 0 });
    assert.strictEqual((await inner.find("Book", { pages: 0 })).length, 3);
    throw new Error("no");
  }), /no/);
  em = orm.em.fork();
  const ann = await em.findOneOrFail("Author", { name: "Ann" }, { populate: ["books"] });
  assert.deepStrictEqual(ann.books.getItems().map((book) => book.pages).sort(), [10, 20, 30]);

  // Two units of work change one document: the second is told.
  const other = orm.em.fork();
  (await other.findOneOrFail("Author", { name: "Ann" })).name = "Anna";
  await other.flush();
  ann.name = "Anne";
  await assert.rejects(em.flush(), OptimisticLockError);

  em = orm.em.fork();
  em.remove(await em.findOneOrFail("Author", { name: "Bob" }, { populate: ["books"] }));
  await em.flush();
  const pages = await em.aggregate("Book", [{ $group: { _id: "$author", pages: { $sum: "$pages" } } }]);
  assert.deepStrictEqual(pages.map((group) => group.pages), [60]);
  await orm.schema.dropSchema();
  await orm.close(true);
});
