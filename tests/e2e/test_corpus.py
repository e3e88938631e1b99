"""The corpus: what MongoDB's manual and specifications say of the language, as data in tests/corpus.

docs/testing.md ("The corpus") says how the files are written. A file is a test; all of its cases that fail are listed.
"""

import json
from pathlib import Path

import pytest
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.errors import OperationFailure
from server import ENGINES, Server

CORPUS = Path(__file__).parent.parent / "corpus"
FILES = sorted(CORPUS.glob("*/*.jsonl"))

# The keys of Extended JSON. `$regex` and `$type` stay operators: a regular expression is a `$regularExpression`.
TYPES = {
    "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$oid", "$date", "$timestamp", "$binary",
    "$regularExpression", "$minKey", "$maxKey", "$code",
}
MISSING = object()
OPTIONS = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
READING = json_util.JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=False)


def typed(pairs):
    """A document, or the value that its one key says it is in Extended JSON."""
    document = dict(pairs)
    if len(document) == 1 and document.keys() <= TYPES:
        return json_util.object_hook(document, READING)
    return document


def canonical(value):
    """Canonical Extended JSON: values are the same only with their types, signs of zero and order of fields."""
    if value is MISSING:
        return "(missing)"
    return json_util.dumps(value, json_options=json_util.CANONICAL_JSON_OPTIONS, ensure_ascii=False)


def cases(path):
    """The line numbers and cases of a file, short cases written out, with what the lines without a result say of all
    that follow them."""
    shared = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            case = json.loads(line, object_pairs_hook=typed)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        if isinstance(case, list):
            question, answer, *notes = case
            case = {"ask": question}
            outcome = isinstance(answer, dict) and answer.keys() & {"error", "missing"}
            case |= answer if outcome else {"result": answer}
            for note in notes:
                case |= note
        elif "ask" not in case:
            shared = case
            continue
        yield number, shared | case


def refusal(error, expected):
    """A refusal as the case has it: a code, or a code and its name."""
    return [error.code, (error.details or {}).get("codeName")] if isinstance(expected, list) else error.code


class Runner:
    """Asks a server what a case asks. Each kind of case, a folder of the corpus, is a method: it gives the answers
    that have to be the case's result, more than one where the same is asked in several ways."""

    def __init__(self, db):
        self.db = db.with_options(OPTIONS)
        self.loaded = None

    def load(self, case):
        """Puts documents, numbered from 0 where they have no `_id`, into the collection `c`, made with the options of
        `create` and with `indexes`, and, with indexes of the `paths`, into `indexed`."""
        docs, paths = case.get("docs", []), sorted(case.get("paths", ()))
        wanted = canonical([docs, paths, case.get("create"), case.get("indexes")])
        if self.loaded != wanted:
            self.loaded = None
            docs = [doc if "_id" in doc else {"_id": number} | doc for number, doc in enumerate(docs)]
            for name in ("c", "indexed") if paths else ("c",):
                self.db.drop_collection(name)
                self.db.command({"create": name, **case.get("create", {})})
                if docs:
                    self.db[name].insert_many(docs)
            specs = [index if "key" in index else {"key": index} for index in case.get("indexes", [])]
            for number, spec in enumerate(specs):
                self.db.command("createIndexes", "c", indexes=[{"name": f"i{number}", **spec}])
            for path in paths:
                self.db.indexed.create_index(path)
            self.loaded = wanted

    def others(self, case):
        for name, docs in case.get("others", {}).items():
            self.db.drop_collection(name)
            self.db[name].insert_many(docs)

    def expressions(self, case):
        pipeline = [{"$documents": {"$literal": [case.get("doc", {})]}}, {"$replaceWith": {"v": case["ask"]}}]
        options = {key: case[key] for key in ("collation", "let") if key in case}
        reply = self.db.command("aggregate", 1, pipeline=pipeline, cursor={}, **options)
        yield reply["cursor"]["firstBatch"][0].get("v", MISSING)

    def match(self, case):
        self.load(case)
        options = {key: case[key] for key in ("collation",) if key in case}
        for name in ("c", "indexed") if case.get("paths") else ("c",):
            yield sorted(doc["_id"] for doc in self.db[name].find(case["ask"], {"_id": 1}, **options))
        if not case.get("find_only"):
            behind = [{"$project": {"copy": "$$ROOT"}}, {"$replaceWith": "$copy"}, {"$match": case["ask"]}]
            found = self.db.c.aggregate(behind, **options)
            yield sorted(doc["_id"] for doc in found)

    def sort(self, case):
        self.load(case)
        options = {key: case[key] for key in ("collation",) if key in case}
        for name in ("c", "indexed") if case.get("paths") else ("c",):
            command = {"find": name, "filter": case.get("filter", {}), "sort": case["ask"], "projection": {"_id": 1}}
            yield [doc["_id"] for doc in self.db.command(command | options)["cursor"]["firstBatch"]]
        found = self.db.c.aggregate([{"$match": case.get("filter", {})}, {"$sort": case["ask"]}], **options)
        yield [doc["_id"] for doc in found]

    def searches(self, case):
        self.load(case)
        command = {"find": "c", "filter": case["ask"], "projection": {"_id": 1}, **case.get("with", {})}
        found = [doc["_id"] for doc in self.db.command(command)["cursor"]["firstBatch"]]
        yield sorted(found) if case.get("any_order") else found

    def projections(self, case):
        doc = case["doc"]
        self.load({"docs": [doc]})
        command = {"find": "c", "filter": case.get("filter", {}), "projection": case["ask"]}
        yield without_id(doc, self.db.command(command)["cursor"]["firstBatch"][0])

    def pipelines(self, case):
        self.load(case)
        self.others(case)
        options = {key: case[key] for key in ("collation", "let") if key in case}
        found = self.db.command("aggregate", "c", pipeline=case["ask"], cursor={}, **options)["cursor"]["firstBatch"]
        yield sorted(found, key=canonical) if case.get("any_order") else found

    def updates(self, case):
        docs = [case["doc"]] if "doc" in case else []
        self.loaded = None
        self.db.c.delete_many({})
        if docs:
            self.db.c.insert_one({"_id": 0} | docs[0])
        options = {key: case[key] for key in ("upsert", "arrayFilters", "collation", "c") if key in case}
        write = {"q": case.get("filter", {}), "u": case["ask"], **options}
        reply = self.db.command("update", "c", updates=[write])
        for refused in reply.get("writeErrors", []):
            raise OperationFailure(refused["errmsg"], refused["code"], refused)
        found = self.db.c.find_one()
        yield found if not docs and "_id" in (case.get("result") or {}) else without_id(docs[0] if docs else {}, found)

    def commands(self, case):
        self.loaded = None
        if case.keys() & {"docs", "create", "indexes"}:
            self.load(case)
        for command in case.get("before", []):
            self.db.command(command)
        target = self.db.client.admin if case.get("admin") else self.db
        reply = target.command(case["ask"], codec_options=OPTIONS)
        yield part(reply, case.get("result", {}))

    def bulk(self, case):
        self.loaded = None
        self.load(case)
        self.db.drop_collection("d")
        namespaces = [{"ns": f"{self.db.name}.{name}"} for name in ("c", "d")]
        ask = case["ask"] if isinstance(case["ask"], dict) else {"ops": case["ask"]}
        reply = self.db.client.admin.command({"bulkWrite": 1, "nsInfo": namespaces, **ask}, codec_options=OPTIONS)
        wanted = case.get("result", {})
        for name in wanted.keys() & {"c", "d"}:
            reply[name] = list(self.db[name].find().sort("_id"))
        yield part(reply, wanted)

    def streams(self, case):
        self.loaded = None
        self.db.drop_collection("d")
        self.load(case)
        for command in case.get("before", []):
            self.db.command(command)
        follow = case.get("follow", "c")
        cursor = self.watch(follow, case, case.get("stream", {}))
        for command in case["ask"]:
            target = self.db.client.admin if "renameCollection" in command else self.db
            target.command(command)
        wanted = case.get("result", [])
        if "resume" in case:
            ((how, at),) = case["resume"].items()
            tokens = [event["_id"] for event in self.events(cursor, at + 1)]
            self.db.command("killCursors", cursor["ns"].split(".", 1)[1], cursors=[cursor["id"]])
            cursor = self.watch(follow, case, case.get("stream", {}) | {how: tokens[at]})
        found = self.events(cursor, len(wanted))
        if cursor["id"]:
            self.db.command("killCursors", cursor["ns"].split(".", 1)[1], cursors=[cursor["id"]])
        yield part(found, wanted)

    def watch(self, follow, case, stage):
        pipeline = [{"$changeStream": stage}, *case.get("pipeline", [])]
        return self.db.command("aggregate", follow, pipeline=pipeline, cursor={})["cursor"]

    def events(self, cursor, count):
        """So many events, or all there are; and one that is too many."""
        found, empty = list(cursor["firstBatch"]), 0
        while cursor["id"] and len(found) <= count and empty < (1 if len(found) >= count else 20):
            name, wait = cursor["ns"].split(".", 1)[1], 10 if len(found) >= count else 500
            reply = self.db.command("getMore", cursor["id"], collection=name, maxTimeMS=wait)["cursor"]
            found, empty = found + reply["nextBatch"], 0 if reply["nextBatch"] else empty + 1
            cursor["id"] = reply["id"]
        return found


def without_id(asked, found):
    """What was found, without an `_id` that the document of the case does not have."""
    if found is not None and "_id" not in asked:
        found.pop("_id", None)
    return found


def part(reply, wanted):
    """What of a reply a case speaks of."""
    if isinstance(wanted, dict) and isinstance(reply, dict):
        return {key: part(reply[key], wanted[key]) for key in wanted if key in reply}
    if isinstance(wanted, list) and isinstance(reply, list) and len(wanted) == len(reply):
        return [part(*pair) for pair in zip(reply, wanted, strict=True)]
    return reply


def difference(runner, kind, case):
    """What was found in place of what the case wants, or None."""
    wanted = MISSING if case.get("missing") else case.get("result")
    if kind == "pipelines" and case.get("any_order") and "error" not in case:
        wanted = sorted(wanted, key=canonical)
    try:
        for answer in getattr(runner, kind)(case):
            if "error" in case:
                return f"error {case['error']} expected, found {canonical(answer)}"
            if canonical(answer) != canonical(wanted):
                return f"expected {canonical(wanted)}\n        found    {canonical(answer)}"
    except OperationFailure as error:
        if "error" not in case:
            return f"expected {canonical(wanted)}\n        found    {error}"
        if refusal(error, case["error"]) != case["error"]:
            return f"error {case['error']} expected, found {error}"
    return None


@pytest.fixture(scope="module")
def member(new_folder):
    """A set of one, which has streams."""
    made = Server(new_folder("member"), ENGINES[0], options=["--replSet", "rs0", "--replSetInitiate"])
    made.start()
    yield made
    assert made.stop() == 0, made.tail()


@pytest.mark.parametrize("server", ENGINES[:1], indirect=True)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_cases(client, path, request):
    kind = path.parent.name
    if kind == "streams":
        client = request.getfixturevalue("member").client(replicaSet="rs0")
    name = f"corpus_{kind}_{path.stem}"
    client.drop_database(name)
    runner, failures, count, known = Runner(client[name]), [], 0, 0
    for number, case in cases(path):
        count += 1
        found = difference(runner, kind, case)
        if "fails" in case:
            known += 1
            if found is None:
                failures.append(f"line {number}: does not fail any more; take the mark off: {case['fails']}")
        elif found is not None:
            failures.append(f"line {number}: {canonical(case['ask'])}\n        {found}")
    client.drop_database(name)
    print(f"{kind}/{path.stem}: {count} cases, {known} of them known to fail")
    assert count, "a file without cases"
    assert not failures, f"{len(failures)} of {count} cases of {path.name}:\n    " + "\n    ".join(failures)


def test_no_case_is_there_twice():
    seen, twice = {}, []
    for path in FILES:
        for number, case in cases(path):
            key = (path.parent.name, canonical({key: case[key] for key in case if key not in ("result", "fails")}))
            place = f"{path.parent.name}/{path.name}:{number}"
            if key in seen:
                twice.append(f"{place} is {seen[key]}")
            seen[key] = place
    print(f"the corpus has {len(seen)} cases in {len(FILES)} files")
    assert not twice, "\n".join(twice)
