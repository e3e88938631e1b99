// Reads every document of benchmark.benchmark, one after the other, as chapter 10 of MongoDB in Action does.
const cursor = db.benchmark.find();
let count = 0;
while (cursor.hasNext()) {
  cursor.next();
  count++;
}
print(count);
