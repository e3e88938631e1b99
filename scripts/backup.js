// Copies the files of a running server: TARGET=/backups/monday mongosh --quiet mongodb://127.0.0.1:27017 backup.js
//
// Run it on the server's machine, as a user who may read its data directory. TARGET must not exist. It ends with an error
// when the copy is not whole. To restore, start tenond on the copy. See docs/operations.md.
const fs = require("fs");
const path = require("path");

const target = process.env.TARGET;
fs.mkdirSync(target);
const cursor = db.getSiblingDB("admin").aggregate([{ $backupCursor: {} }]);
try {
  const { metadata } = cursor.next();
  const files = [];
  for (let file = cursor.tryNext(); file; file = cursor.tryNext()) files.push(file);
  const part = Buffer.alloc(64 << 20);
  const directories = new Set([target]);
  for (const { filename, fileSize } of files) {
    const to = path.join(target, path.relative(metadata.dbpath, filename));
    for (let made = path.dirname(to); !directories.has(made); made = path.dirname(made)) directories.add(made);
    fs.mkdirSync(path.dirname(to), { recursive: true });
    const [source, copy] = [fs.openSync(filename, "r"), fs.openSync(to, "wx")];
    for (let left = Number(fileSize); left > 0; ) {
      const read = fs.readSync(source, part, 0, Math.min(left, part.length));
      if (read === 0) throw new Error(`${filename} has become shorter`);
      let written = 0;
      while (written < read) written += fs.writeSync(copy, part, written, read - written);
      left -= read;
      // Keeps the backup open, and fails when it is not: what has been copied is then worthless.
      cursor.tryNext();
    }
    fs.fsyncSync(copy);
    fs.closeSync(source);
    fs.closeSync(copy);
  }
  for (const directory of directories) {
    const opened = fs.openSync(directory, "r");
    fs.fsyncSync(opened);
    fs.closeSync(opened);
  }
  cursor.tryNext();
  print(`${files.length} files of backup ${metadata.backupId.toString()} are in ${target}`);
} finally {
  cursor.close();
}
