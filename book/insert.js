// Fills benchmark.benchmark with the documents of MongoDB in Action, chapter 10: four fields of four types, an array of eight
// such documents and eight such sub-documents, all random. Run by mongosh, one insert a document.
// DOCUMENTS in the environment overrides the book's 10,000.
const documents = Number(process.env.DOCUMENTS || 10000);

function fields(prefix) {
  const random = Math.random();
  const whole = Math.floor(1e8 * random);
  return {
    [prefix + (prefix ? "_date" : "date_field")]: new Date(1.5e12 * random),
    [prefix + (prefix ? "_int" : "int_field")]: whole,
    [prefix + (prefix ? "_string" : "string_field")]: Math.floor(1e64 * random).toString(36),
    [prefix + (prefix ? "_bool" : "bool_field")]: whole % 2,
  };
}

for (let n = 0; n < documents; n++) {
  const document = fields("random");
  document.arr = Array.from({ length: 8 }, () => fields(""));
  for (let i = 8; i < 16; i++) document["sub" + i] = fields("");
  db.benchmark.insertOne(document);
}
