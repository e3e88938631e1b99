"use strict";
// An application on mongoose that knows nothing of members: it runs until its input ends, and prints what it did and what failed.
// TENON_URI names the set.
const mongoose = require("mongoose");

const counts = { saved: 0, bumped: 0, moved: 0, read: 0 };
const failures = [];
const saved = [];
let over = false;
process.stdin.resume();
process.stdin.on("end", () => { over = true; });

const Order = mongoose.model("Order", new mongoose.Schema({ number: { type: Number, unique: true }, lines: [{ article: String, pieces: Number }] }, { timestamps: true }));
const Counter = mongoose.model("Counter", new mongoose.Schema({ _id: String, n: { type: Number, default: 0 } }));
const Account = mongoose.model("Account", new mongoose.Schema({ _id: Number, amount: Number }));

async function repeat(name, work) {
  for (let turn = 0; !over; turn++) {
    try {
      await work(turn);
      counts[name]++;
    } catch (error) {
      failures.push(`${name}: ${error.name} ${error.code ?? ""} ${error.message}`);
    }
  }
}

async function main() {
  await mongoose.connect(process.env.TENON_URI, { dbName: "application" });
  await Promise.all([Order.init(), Counter.init(), Account.init()]);
  await Account.create([{ _id: 0, amount: 1000 }, { _id: 1, amount: 1000 }]);
  await Counter.create({ _id: "bumps" });
  console.log("begun");
  await Promise.all([
    repeat("saved", async (turn) => {
      const order = await Order.create({ number: turn, lines: [{ article: "bolt", pieces: 1 }] });
      order.lines.push({ article: "nut", pieces: 2 });
      await order.save();
      saved.push(turn);
    }),
    repeat("bumped", () => Counter.findByIdAndUpdate("bumps", { $inc: { n: 1 } })),
    repeat("moved", (turn) => mongoose.connection.transaction(async (session) => {
      const [from, to] = turn % 2 ? [0, 1] : [1, 0];
      await Account.updateOne({ _id: from }, { $inc: { amount: -1 } }, { session });
      await Account.updateOne({ _id: to }, { $inc: { amount: 1 } }, { session });
    })),
    repeat("read", async () => {
      await Order.find().sort({ number: -1 }).limit(5);
    }),
  ]);
  const orders = new Set((await Order.find({ "lines.1.article": "nut" }, { number: 1 })).map((order) => order.number));
  const lost = saved.filter((number) => !orders.has(number));
  const sum = (await Account.find()).reduce((sum, account) => sum + account.amount, 0);
  const bumps = (await Counter.findById("bumps")).n;
  console.log(JSON.stringify({ counts, failures, lost, sum, bumps }));
  await mongoose.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
