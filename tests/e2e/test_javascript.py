"""Server-side JavaScript: `$where`, `$function`, `$accumulator`, `mapReduce`, and what bounds scripts."""

import os
import random
import signal
import socket
import struct
import threading
import time

import bson
import pytest
from bson import Code, Int64, ObjectId
from bson.decimal128 import Decimal128
from bson.son import SON
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError
from server import ENGINES, Server

SERVER_OPTIONS = ["--javascriptEnabled"]


def refused(call, code, text=""):
    with pytest.raises(OperationFailure) as failure:
        call()
    assert failure.value.code == code, failure.value
    assert text in str(failure.value)


def ids(documents):
    return sorted(document["_id"] for document in documents)


def function(body, *args):
    return {"$function": {"body": body, "args": list(args), "lang": "js"}}


def computed(collection, body, *args):
    """What a function gives, computed on one document."""
    collection.database.one.replace_one({"_id": 1}, {"_id": 1}, upsert=True)
    [result] = collection.database.one.aggregate([{"$project": {"value": function(body, *args)}}])
    return result.get("value", "missing")


@pytest.fixture
def numbers(db):
    db.numbers.insert_many({"_id": n, "a": n, "b": n % 3, "s": "x" * n} for n in range(10))
    return db.numbers


# $where


def test_where_takes_expressions_bodies_and_functions(numbers):
    for condition in [
        "this.a > 5",
        "obj.a > 5",
        "return this.a > 5",
        "var limit = 5; return this.a > limit;",
        "var limit = 5;\nthis.a > limit\n  && this.a < 100",
        "// don't count\nvar returned = this.a; returned > 5; // a comment",
        "let a = this.a; if (a > 100) { a = 0 } a > 5",
        "function over(d) { return d.a > 5; } over(this)",
        "function() { return this.a > 5; }",
        "function() { return obj.a > 5 }",
        "() => obj.a > 5",
        Code("this.a > 5"),
        Code("function() { return this.a > 5; }"),
    ]:
        assert ids(numbers.find({"$where": condition})) == [6, 7, 8, 9], condition


def test_where_is_true_as_javascript_has_it(numbers):
    assert ids(numbers.find({"$where": "this.a"})) == list(range(1, 10))
    assert ids(numbers.find({"$where": "this.s"})) == list(range(1, 10))
    assert ids(numbers.find({"$where": "this.nothing"})) == []
    assert ids(numbers.find({"$where": "({})"})) == list(range(10))


def test_where_beside_and_inside_other_conditions(numbers):
    assert ids(numbers.find({"b": 1, "$where": "this.a > 3"})) == [4, 7]
    assert ids(numbers.find({"$or": [{"$where": "this.a == 1"}, {"a": 2}]})) == [1, 2]
    assert ids(numbers.find({"$nor": [{"$where": "this.a > 1"}]})) == [0, 1]
    assert ids(numbers.find({"$and": [{"$where": "this.a > 1"}, {"$where": "this.a < 4"}]})) == [2, 3]
    # Others are asked first: this script fails on all documents but one.
    picky = "if (this.a != 4) throw new Error('asked'); return true;"
    assert ids(numbers.find({"$where": picky, "a": 4})) == [4]
    refused(lambda: list(numbers.find({"$where": picky})), 139, "asked")


def test_where_in_every_command_with_a_filter(db, numbers):
    where = {"$where": "this.a >= 8"}
    assert db.command("count", "numbers", query=where)["n"] == 2
    assert sorted(numbers.distinct("a", where)) == [8, 9]
    assert numbers.update_many(where, {"$set": {"c": 1}}).modified_count == 2
    assert numbers.find_one_and_update(where, {"$inc": {"c": 1}}, sort=[("a", -1)])["a"] == 9
    assert numbers.delete_many(where).deleted_count == 2
    assert numbers.delete_one({"$where": "this.a == 7"}).deleted_count == 1
    assert numbers.find_one_and_delete({"$where": "this.a == 6"})["a"] == 6
    assert ids(numbers.find()) == list(range(6))


def test_where_is_refused_where_mongodb_refuses_it(db, numbers):
    where = {"$where": "true"}
    refused(lambda: list(numbers.aggregate([{"$match": where}])), 2, "$where is not allowed in this context")
    refused(lambda: list(numbers.find({"a": {"$elemMatch": {"$or": [where]}}})), 2, "top-level document")
    refused(lambda: db.create_collection("validated", validator=where), 2)
    refused(lambda: numbers.create_index("a", partialFilterExpression=where), 2)
    refused(lambda: list(numbers.find({"$where": 1})), 2, "bad type")
    refused(lambda: list(numbers.find({"$where": ""})), 2, "cannot be empty")
    refused(lambda: list(numbers.find({"$where": Code("true", {"x": 1})})), 4649201, "CodeWScope")
    refused(lambda: list(numbers.find({"$where": "this is no script"})), 139, "SyntaxError")
    refused(lambda: list(numbers.find({"$where": "nobody.knows"})), 139, "ReferenceError")


def test_where_is_shown_by_explain(numbers):
    plan = numbers.find({"a": 1, "$where": "this.b == 1"}).explain()["queryPlanner"]
    assert plan["parsedQuery"] == {"$and": [{"a": {"$eq": 1}}, {"$where": "this.b == 1"}]}


# $function


def test_the_example_of_the_manual_for_function(db):
    db.players.insert_many(
        [
            {"_id": 1, "name": "Miss Cheevous", "scores": [10, 5, 10]},
            {"_id": 2, "name": "Miss Ann Thrope", "scores": [10, 10, 10]},
            {"_id": 3, "name": "Mrs. Eppie Delta ", "scores": [9, 8, 8]},
        ]
    )
    is_found = 'function(name) { return hex_md5(name) == "15b0a220baa16331e8d80e15367677ad" }'
    message = 'function(name, scores) { let total = Array.sum(scores); return `Hello ${name}.  Your total score is ${total}.` }'
    stage = {"$addFields": {"isFound": function(is_found, "$name"), "message": function(message, "$name", "$scores")}}
    found = list(db.players.aggregate([stage]))
    assert [document["isFound"] for document in found] == [False, True, False]
    assert found[0]["message"] == "Hello Miss Cheevous.  Your total score is 25."
    by_expression = {"$expr": function(is_found, "$name")}
    assert ids(db.players.find(by_expression)) == [2]


def test_values_come_and_go(numbers):
    whole = {"_id": ObjectId(), "l": Int64(1 << 60), "d": Decimal128("1.10"), "f": 2.5, "n": None, "a": [1, "x", {"y": True}]}
    numbers.database.values.insert_one(whole)
    stage = {"$replaceWith": function("function(d) { return d }", "$$ROOT")}
    [back] = numbers.database.values.aggregate([stage])
    assert back == whole
    assert list(back) == list(whole)
    assert computed(numbers, "function(x) { return x }", Int64(5)) == Int64(5)
    assert computed(numbers, "function(x) { return x + 1 }", Int64(5)) == 6
    # A number is a double.
    assert isinstance(computed(numbers, "function(x) { return x }", 5), float)
    assert isinstance(computed(numbers, "function() { return NumberInt(5) }"), int)
    assert computed(numbers, "function() { return NumberLong('9223372036854775807') }") == (1 << 63) - 1
    assert computed(numbers, "function() { return function(a) { return a } }") == Code("function(a) { return a }")
    assert computed(numbers, "function() { return [1, undefined] }") == [1, None]
    assert computed(numbers, "function() { return null }") is None


def test_function_says_what_is_wrong_with_it(numbers):
    def run(argument):
        return lambda: list(numbers.aggregate([{"$project": {"x": {"$function": argument}}}]))

    whole = {"body": "function() { return 1 }", "args": [], "lang": "js"}
    refused(run(1), 31260)
    refused(run({"args": [], "lang": "js"}), 31261)
    refused(run(whole | {"body": "$a"}), 31432)
    refused(run(whole | {"body": 1}), 31262)
    refused(run({"body": "x", "lang": "js"}), 31263)
    refused(run(whole | {"args": "$a"}), 31266)
    refused(run({"body": "x", "args": []}), 31418)
    refused(run(whole | {"lang": "python"}), 31419)
    validator = {"$expr": {"$function": whole}}
    refused(lambda: numbers.database.create_collection("validated", validator=validator), 4660800)


def test_results_that_are_no_bson(numbers):
    def run(body):
        return lambda: computed(numbers, body)

    refused(run("function() { return Symbol('x') }"), 16662)
    refused(run("function() { return 10n }"), 16662)
    refused(run("function() { let a = {}; a.a = a; return a }"), 17279)
    refused(run("function() { return 'x'.repeat(17 << 20) }"), 17260)
    refused(run("function() { return {get a() { throw new Error('got') }} }"), 139, "got")
    refused(run("function() { return new Date(NaN) }"), 16662)
    refused(run("function() { return {'a\\0b': 1} }"), 16985)


# $accumulator


BOOKS = [
    {"_id": 8751, "title": "The Banquet", "author": "Dante", "copies": 2},
    {"_id": 8752, "title": "Divine Comedy", "author": "Dante", "copies": 1},
    {"_id": 8645, "title": "Eclogues", "author": "Dante", "copies": 2},
    {"_id": 7000, "title": "The Odyssey", "author": "Homer", "copies": 10},
    {"_id": 7020, "title": "Iliad", "author": "Homer", "copies": 10},
]
AVERAGE = {
    "init": "function() { return { count: 0, sum: 0 } }",
    "accumulate": "function(state, copies) { return { count: state.count + 1, sum: state.sum + copies } }",
    "accumulateArgs": ["$copies"],
    "merge": "function(a, b) { return { count: a.count + b.count, sum: a.sum + b.sum } }",
    "finalize": "function(state) { return state.sum / state.count }",
    "lang": "js",
}


def test_the_examples_of_the_manual_for_accumulator(db):
    db.books.insert_many(BOOKS)
    stages = [{"$group": {"_id": "$author", "avgCopies": {"$accumulator": AVERAGE}}}, {"$sort": {"_id": 1}}]
    averages = list(db.books.aggregate(stages))
    assert [document["_id"] for document in averages] == ["Dante", "Homer"]
    assert averages[0]["avgCopies"] == pytest.approx(5 / 3)
    assert averages[1]["avgCopies"] == 10
    for n, (city, name) in enumerate(
        [("Bettles", "Food Fury"), ("Bettles", "Meal Macro"), ("Onida", "Big Crisp"), ("Onida", "The Wrap"), ("Onida", "Spice Attack"), ("Onida", "Soup City")]
    ):
        db.restaurants.insert_one({"_id": n, "name": name, "city": city})
    restaurants = {
        "init": "function(city, userProfileCity) { return { max: city === userProfileCity ? 3 : 1, restaurants: [] } }",
        "initArgs": ["$city", "Bettles"],
        "accumulate": "function(state, name) { if (state.restaurants.length < state.max) state.restaurants.push(name); return state; }",
        "accumulateArgs": ["$name"],
        "merge": "function(a, b) { return { max: a.max, restaurants: a.restaurants.concat(b.restaurants).slice(0, a.max) } }",
        "finalize": "function(state) { return state.restaurants }",
        "lang": "js",
    }
    found = db.restaurants.aggregate(
        [{"$group": {"_id": {"city": "$city"}, "restaurants": {"$accumulator": restaurants}}}, {"$sort": {"_id": 1}}]
    )
    assert [document["restaurants"] for document in found] == [["Food Fury", "Meal Macro"], ["Big Crisp"]]


def test_accumulators_in_buckets(db, numbers):
    total = AVERAGE | {"accumulateArgs": ["$a"]}
    bucket = {"groupBy": "$a", "boundaries": [0, 5, 10], "output": {"x": {"$accumulator": total}}}
    assert [document["x"] for document in numbers.aggregate([{"$bucket": bucket}])] == [2, 7]
    auto = {"groupBy": "$a", "buckets": 2, "output": {"x": {"$accumulator": total}}}
    assert [document["x"] for document in numbers.aggregate([{"$bucketAuto": auto}])] == [2, 7]
    auto["output"] = {"x": {"$accumulator": total | {"initArgs": ["$a"]}}}
    refused(lambda: list(numbers.aggregate([{"$bucketAuto": auto}])), 4544714)
    window = {"sortBy": {"a": 1}, "output": {"x": {"$accumulator": total}}}
    refused(lambda: list(numbers.aggregate([{"$setWindowFields": window}])), 9, "Unrecognized window function")


def test_accumulators_that_spill_give_the_same(db):
    db.many.insert_many({"_id": n, "k": n % 997, "text": str(n) * 20} for n in range(20_000))
    joined = {
        "init": "function() { return [] }",
        "accumulate": "function(state, text) { state.push(text); return state }",
        "accumulateArgs": ["$text"],
        "merge": "function(a, b) { return a.concat(b) }",
        "finalize": "function(state) { return state.sort().join() }",
        "lang": "js",
    }
    stages = [{"$group": {"_id": "$k", "x": {"$accumulator": joined}}}, {"$sort": {"_id": 1}}]
    in_memory = list(db.many.aggregate(stages))
    assert len(in_memory) == 997
    admin = db.client.admin
    limit = "internalDocumentSourceGroupMaxMemoryBytes"
    admin.command("setParameter", 1, **{limit: 500_000})
    try:
        spilled = list(db.many.aggregate(stages, allowDiskUse=True))
    finally:
        admin.command("setParameter", 1, **{limit: 100 << 20})
    assert spilled == in_memory


def test_what_init_returns_counts_in_the_memory_of_groups(db):
    db.few.insert_many({"_id": n} for n in range(20))
    large = {
        "init": "function() { return 'a'.repeat(100000) }",
        "accumulate": "function(state) { return state }",
        "accumulateArgs": [],
        "merge": "function(a, b) { return a }",
        "finalize": "function(state) { return state.length }",
        "lang": "js",
    }
    stages = [{"$group": {"_id": "$_id", "x": {"$accumulator": large}}}]
    admin = db.client.admin
    limit = "internalDocumentSourceGroupMaxMemoryBytes"
    admin.command("setParameter", 1, **{limit: 1_000_000})
    try:
        refused(lambda: list(db.few.aggregate(stages, allowDiskUse=False)), 292, "memory")
        assert [group["x"] for group in db.few.aggregate(stages, allowDiskUse=True)] == [100_000] * 20
    finally:
        admin.command("setParameter", 1, **{limit: 100 << 20})


def test_accumulator_says_what_is_wrong_with_it(numbers):
    def run(argument):
        return lambda: list(numbers.aggregate([{"$group": {"_id": None, "x": {"$accumulator": argument}}}]))

    refused(run(1), 4544703)
    for name, code in [("init", 4544707), ("accumulate", 4544708), ("merge", 4544709), ("accumulateArgs", 4544710)]:
        refused(run({key: value for key, value in AVERAGE.items() if key != name}), code)
    refused(run(AVERAGE | {"init": "$a"}), 4544701)
    refused(run(AVERAGE | {"init": 1}), 4544702)
    refused(run(AVERAGE | {"lang": 1}), 4544704)
    refused(run(AVERAGE | {"lang": "python"}), 4544705)
    refused(run(AVERAGE | {"other": 1}), 4544706)
    refused(run(AVERAGE | {"initArgs": "x"}), 4544711)
    refused(run(AVERAGE | {"accumulateArgs": "x"}), 4544712)


# mapReduce


def map_reduce(db, collection, map, reduce, out, **options):
    return db.command(SON([("mapReduce", collection), ("map", Code(map)), ("reduce", Code(reduce)), ("out", out)]), **options)


ORDERS = [
    {"_id": 1, "cust_id": "Ant O. Knee", "price": 25, "items": [{"sku": "oranges", "qty": 5}, {"sku": "apples", "qty": 5}]},
    {"_id": 2, "cust_id": "Ant O. Knee", "price": 70, "items": [{"sku": "oranges", "qty": 8}, {"sku": "chocolates", "qty": 5}]},
    {"_id": 3, "cust_id": "Busby Bee", "price": 50, "items": [{"sku": "oranges", "qty": 10}]},
    {"_id": 4, "cust_id": "Cam Elot", "price": 35, "items": [{"sku": "carrots", "qty": 10}, {"sku": "apples", "qty": 10}]},
]


def test_the_examples_of_the_manual_for_map_reduce(db):
    db.orders.insert_many(ORDERS)
    reply = map_reduce(
        db,
        "orders",
        "function() { emit(this.cust_id, this.price); }",
        "function(keyCustId, valuesPrices) { return Array.sum(valuesPrices); }",
        "map_reduce_example",
    )
    assert reply["result"] == "map_reduce_example"
    assert list(db.map_reduce_example.find().sort("_id", 1)) == [
        {"_id": "Ant O. Knee", "value": 95},
        {"_id": "Busby Bee", "value": 50},
        {"_id": "Cam Elot", "value": 35},
    ]
    map = """function() {
        for (var idx = 0; idx < this.items.length; idx++) {
            var key = this.items[idx].sku;
            emit(key, { count: 1, qty: this.items[idx].qty });
        }
    }"""
    reduce = """function(keySKU, countObjVals) {
        reducedVal = { count: 0, qty: 0 };
        for (var idx = 0; idx < countObjVals.length; idx++) {
            reducedVal.count += countObjVals[idx].count;
            reducedVal.qty += countObjVals[idx].qty;
        }
        return reducedVal;
    }"""
    finalize = "function(key, reducedVal) { reducedVal.avg = reducedVal.qty / reducedVal.count; return reducedVal; }"
    reply = map_reduce(db, "orders", map, reduce, {"inline": 1}, query={"_id": {"$gte": 2}}, finalize=Code(finalize))
    found = {result["_id"]: result["value"] for result in reply["results"]}
    assert found["oranges"] == {"count": 2, "qty": 18, "avg": 9}
    assert found["carrots"] == {"count": 1, "qty": 10, "avg": 10}
    assert set(found) == {"oranges", "chocolates", "carrots", "apples"}


def test_map_reduce_takes_sort_limit_scope_and_the_other_name(db, numbers):
    options = {"sort": {"a": -1}, "limit": 3, "scope": {"factor": 10}}
    reply = map_reduce(db, "numbers", "function() { emit(0, this.a * factor) }", "function(k, v) { return Array.sum(v) }", {"inline": 1}, **options)
    assert reply["results"] == [{"_id": 0, "value": 240}]
    lower = SON([("mapreduce", "numbers"), ("map", "function() { emit(this.b, 1) }"), ("reduce", "function(k, v) { return v.length }"), ("out", {"inline": 1})])
    results = db.command(lower)["results"]
    assert {result["_id"]: result["value"] for result in results} == {0: 4, 1: 3, 2: 3}


def test_map_reduce_writes_as_out_says(db, numbers):
    count = ("numbers", "function() { emit(this.b, 1) }", "function(k, v) { return Array.sum(v) }")

    def result():
        return {document["_id"]: document["value"] for document in db.target.find()}

    db.target.insert_many([{"_id": 0, "value": 100}, {"_id": "other", "value": 1}])
    map_reduce(db, *count, {"reduce": "target"})
    assert result() == {0: 104, 1: 3, 2: 3, "other": 1}
    map_reduce(db, *count, {"merge": "target"})
    assert result() == {0: 4, 1: 3, 2: 3, "other": 1}
    map_reduce(db, *count, {"reduce": "target"}, finalize="function(k, v) { return v + 1000 }")
    # What is written was finalized, and so is what becomes of it.
    assert result()[0] == 2008
    map_reduce(db, *count, {"replace": "target"})
    assert result() == {0: 4, 1: 3, 2: 3}
    other = db.client[db.name + "_other"]
    reply = map_reduce(db, *count, {"replace": "target", "db": other.name})
    assert reply["result"] == {"db": other.name, "collection": "target"}
    assert other.target.count_documents({}) == 3
    db.client.drop_database(other.name)


def test_explain_shows_the_pipeline_of_map_reduce(db, numbers):
    command = SON([("mapReduce", "numbers"), ("map", "function() { emit(this.b, 1) }"), ("reduce", "function(k, v) { return 1 }"), ("out", {"inline": 1})])
    plan = db.command("explain", command, verbosity="executionStats")
    assert [next(iter(stage)) for stage in plan["stages"]] == ["$cursor", "$project", "$unwind", "$group"]
    assert plan["stages"][-1]["nReturned"] == 3
    command["out"] = "target"
    assert "stages" in db.command("explain", command, verbosity="queryPlanner")
    refused(lambda: db.command("explain", command, verbosity="executionStats"), 51029)
    assert "target" not in db.list_collection_names()


def test_map_reduce_says_what_is_wrong_with_it(db, numbers):
    count = ["numbers", "function() { emit(this.b, 1) }", "function(k, v) { return 1 }"]
    refused(lambda: db.command("mapReduce", "numbers", map="x", reduce="x"), 40414)
    refused(lambda: db.command("mapReduce", "numbers", reduce="x", out={"inline": 1}), 40414)
    refused(lambda: map_reduce(db, *count, 5), 9)
    refused(lambda: map_reduce(db, *count, {"db": "x"}), 13522)
    refused(lambda: map_reduce(db, *count, {"inline": 1}, limit=-1), 15958)
    refused(lambda: map_reduce(db, "numbers", "function() { emit(1) }", count[2], {"inline": 1}), 31220)
    refused(lambda: map_reduce(db, "numbers", "function() { throw new Error('no') }", count[2], {"inline": 1}), 139)
    db.create_collection("view", viewOn="numbers", pipeline=[])
    refused(lambda: map_reduce(db, "view", *count[1:], {"inline": 1}), 166)
    assert map_reduce(db, "nonesuch", *count[1:], {"inline": 1})["results"] == []


# The sandbox


def test_scripts_that_do_not_end_are_ended(db, numbers):
    endless = [
        "while (true) {}",
        "for (;;) { try { null.x } catch (e) {} }",
        "(function f() { try { while (true) {} } finally { f() } })()",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "while (true) [1, 2, 3].map(x => x)",
    ]
    for script in endless:
        with pytest.raises(ExecutionTimeout):
            list(numbers.find({"$where": script}).max_time_ms(200))
        with pytest.raises(ExecutionTimeout):
            list(numbers.aggregate([{"$project": {"x": function(f"function() {{ {script} }}")}}], maxTimeMS=200))
    assert ids(numbers.find({"$where": "this.a > 8"})) == [9]


def test_kill_op_ends_a_script(db, numbers):
    failures = []

    def run():
        try:
            list(numbers.find({"$where": "while (true) {}"}, comment="endless"))
        except OperationFailure as failure:
            failures.append(failure.code)

    thread = threading.Thread(target=run)
    thread.start()
    admin = db.client.admin
    while not running(admin, "endless"):
        time.sleep(0.01)
    for operation in running(admin, "endless"):
        admin.command("killOp", op=operation["opid"])
    thread.join(30)
    assert failures == [11601]


def running(admin, comment):
    return [operation for operation in admin.command("currentOp")["inprog"] if operation.get("command", {}).get("comment") == comment]


def test_a_script_ends_when_its_client_has_gone(server, db, numbers):
    command = {"find": "numbers", "filter": {"$where": "while (true) {}"}, "comment": "left", "$db": db.name}
    body = bson.encode(command)
    admin = db.client.admin
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        while not running(admin, "left"):
            time.sleep(0.01)
    while running(admin, "left"):
        time.sleep(0.01)


def test_an_inline_map_reduce_ends_when_its_client_has_gone(server, db, numbers):
    endless = {"map": "function() { while (true) {} }", "reduce": "function(k, v) { return v[0] }", "out": {"inline": 1}}
    body = bson.encode({"mapReduce": "numbers", **endless, "comment": "left", "$db": db.name})
    admin = db.client.admin
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body)
        while not running(admin, "left"):
            time.sleep(0.01)
    while running(admin, "left"):
        time.sleep(0.01)


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ENDLESS = "function() { while (true) {} }"
ENDLESS_FILTERS = {
    "find": {"find": "numbers", "filter": {"$where": ENDLESS}},
    "find by a plan of several": {"find": "numbers", "filter": {"a": 1, "b": {"$gte": 0}, "$where": ENDLESS}},
    "projection": {"find": "numbers", "projection": {"x": function(ENDLESS)}},
    "count": {"count": "numbers", "query": {"$where": ENDLESS}},
    "distinct": {"distinct": "numbers", "key": "a", "query": {"$expr": function(ENDLESS)}},
    "update": {"update": "numbers", "updates": [{"q": {"$where": ENDLESS}, "u": {"$set": {"b": 1}}}]},
    "update by a script": {"update": "numbers", "updates": [{"q": {"_id": 1}, "u": [{"$set": {"b": function(ENDLESS)}}]}]},
    "delete": {"delete": "numbers", "deletes": [{"q": {"$where": ENDLESS}, "limit": 0}]},
    "findAndModify": {"findAndModify": "numbers", "query": {"$where": ENDLESS}, "remove": True},
    "lookup": {
        "aggregate": "numbers",
        "cursor": {},
        "pipeline": [
            {"$lookup": {"from": "numbers", "localField": "_id", "foreignField": "_id", "as": "x",
                         "pipeline": [{"$match": {"$expr": function(ENDLESS)}}]}},
        ],
    },
    "explain": {"explain": {"find": "numbers", "filter": {"$where": ENDLESS}}, "verbosity": "executionStats"},
}


@pytest.mark.parametrize("name", ENDLESS_FILTERS)
def test_whoever_wants_a_collection_does_not_wait_for_a_script(server, db, numbers, name):
    """One script that did not end held the lock of its collection, and all that came behind a change waited for it."""
    numbers.create_index("a")
    numbers.create_index([("b", 1), ("a", 1)])
    failures = []

    def run():
        try:
            db.command({**ENDLESS_FILTERS[name], "comment": "endless"})
        except OperationFailure as failure:
            failures.append(failure.code)

    thread = threading.Thread(target=run)
    thread.start()
    admin = db.client.admin
    while not running(admin, "endless"):
        time.sleep(0.01)
    # Only a script takes so much of a processor.
    begun = cpu_seconds(server)
    while cpu_seconds(server) < begun + 0.5:
        time.sleep(0.01)
    db.command("createIndexes", "numbers", indexes=[{"key": {"c": 1}, "name": "c"}], maxTimeMS=60000)
    numbers.insert_one({"_id": 1000, "c": 1})
    assert numbers.count_documents({"c": 1}, maxTimeMS=60000) == 1
    db.command("drop", "numbers", maxTimeMS=60000)
    assert running(admin, "endless") and not failures
    for operation in running(admin, "endless"):
        admin.command("killOp", op=operation["opid"])
    thread.join(60)
    assert failures == [11601]


def test_plans_are_chosen_where_a_script_gives_what_null_does_not(db):
    """Trials run no scripts: the plan that came to a document first had failed, and the one that read most won."""
    db.many.insert_many({"_id": n, "a": n, "b": n} for n in range(20000))
    db.many.create_index("b")
    db.many.create_index("a")
    one = function("function(a) { return [a] }", "$a")
    for condition in [
        {"$expr": {"$eq": [{"$size": one}, 1]}},
        {"$expr": {"$in": ["$a", one]}},
        {"$nor": [{"$expr": {"$ne": [{"$size": one}, 1]}}]},
        {"$nor": [{"$where": "this.a < 0"}]},
    ]:
        found = db.many.find({"a": {"$gte": 19990}, "b": {"$gte": 0}, **condition})
        plan = str(found.explain()["queryPlanner"]["winningPlan"])
        assert "a_1" in plan and "b_1" not in plan, (condition, plan)
        assert len(list(found)) == 10


def test_scripts_beside_positional_projections(db):
    """They ran again for each document, to find the element that their filter had found."""
    db.c.insert_many({"_id": n, "a": [{"b": 0}, {"b": n}, {"b": 9}]} for n in range(1, 9))
    once = "globalThis.seen = globalThis.seen || {}; if (seen[id]) throw new Error('again'); return seen[id] = true;"
    expected = [{"_id": n, "a": [{"b": n if n > 3 else 9}]} for n in range(1, 9)]
    for condition in [{"$where": f"const id = this._id; {once}"}, {"$expr": function(f"function(id) {{ {once} }}", "$_id")}]:
        found = db.c.find({"a.b": {"$gt": 3}, **condition}, {"a.$": 1}).sort("_id", 1)
        assert list(found) == expected, condition
    twice = function("function(id) { return id * 2 }", "$_id")
    found = db.c.find({"a.b": {"$gt": 3}, "$where": "this._id > 1"}, {"a.$": 1, "twice": twice}).sort("_id", 1)
    assert list(found) == [{**one, "twice": one["_id"] * 2} for one in expected[1:]]


def test_writes_by_scripts_change_what_matches(db, numbers):
    """They look at a document before they lock it, and again at one that is another then."""
    assert numbers.update_many({"$where": "this.a % 2 == 0"}, {"$inc": {"n": 1}}).modified_count == 5
    assert ids(numbers.find({"n": 1})) == [0, 2, 4, 6, 8]
    doubled = [{"$set": {"n": function("function(a) { return 2 * a }", "$a")}}]
    assert numbers.update_one({"_id": 3}, doubled).modified_count == 1
    assert numbers.find_one({"_id": 3})["n"] == 6
    assert numbers.update_one({"_id": 3}, doubled).modified_count == 0
    assert numbers.find_one_and_update({"$where": "this.a == 5"}, {"$set": {"n": 9}}, return_document=True)["n"] == 9
    assert numbers.delete_many({"$where": "this.a > 6"}).deleted_count == 3
    assert ids(numbers.find()) == [0, 1, 2, 3, 4, 5, 6]

    def add():
        for _ in range(50):
            numbers.update_many({"$where": "this.a < 3"}, {"$inc": {"sum": 1}})

    threads = [threading.Thread(target=add) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [one["sum"] for one in numbers.find({"a": {"$lt": 3}})] == [150, 150, 150]


def test_a_write_by_a_script_gets_its_turn_beside_faster_writers(db, numbers):
    """Its document was another one each time that the script was done, and it began anew for ever."""
    slow = "function(a) { const end = Date.now() + 20; while (Date.now() < end) {} return a }"
    ended = threading.Event()

    def count():
        while not ended.is_set():
            numbers.update_one({"_id": 3}, {"$inc": {"n": 1}})

    threads = [threading.Thread(target=count) for _ in range(4)]
    [thread.start() for thread in threads]
    try:
        for write in [
            lambda: numbers.update_one({"_id": 3}, [{"$set": {"copy": function(slow, "$a")}}]),
            lambda: numbers.delete_one({"_id": 3, "$expr": {"$eq": [function(slow, "$a"), 3]}}),
        ]:
            # On a busy machine 100 ms may be too short for the script; it is told of.
            while True:
                try:
                    assert write().raw_result["n"] == 1
                    break
                except OperationFailure as failure:
                    assert failure.code == 112, failure
    finally:
        ended.set()
        [thread.join() for thread in threads]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_script_that_changes_nothing_in_a_transaction_locks_nothing(tmp_path, engine):
    unchanged = [{"$set": {"b": function("function(b) { return b }", "$b")}}]
    with Server(tmp_path / "data", engine, options=[*SERVER_OPTIONS, "--replSet", "rs0", "--replSetInitiate"]) as server:
        client = server.client()
        numbers = client.test.numbers
        numbers.insert_many({"_id": n, "b": f"text {n}"} for n in range(3))
        with client.start_session() as session:
            session.start_transaction()
            result = numbers.update_many({"_id": {"$in": [1, 2]}}, unchanged, session=session)
            assert (result.matched_count, result.modified_count) == (2, 0)
            with client.start_session() as other:
                other.start_transaction()
                assert numbers.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=other).modified_count == 1
                other.commit_transaction()
            session.commit_transaction()
        assert numbers.find_one({"_id": 1})["n"] == 1


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_a_script_ends_with_its_server(tmp_path, engine):
    server = Server(tmp_path / "data", engine, options=["--javascriptEnabled"])
    server.start()
    client = server.client()
    client.test.c.insert_one({"_id": 1})
    failures = []

    def run():
        try:
            list(server.client(retryReads=False).test.c.find({"$where": "while (true) {}"}, comment="left"))
        except PyMongoError as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    while not running(client.admin, "left"):
        time.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    thread.join(60)
    assert len(failures) == 1, failures


def test_a_call_may_not_take_longer_than_the_parameter_says(db, numbers):
    admin = db.client.admin
    name = "internalQueryJavaScriptFnTimeoutMillis"
    assert admin.command("getParameter", 1, **{name: 1})[name] == 60_000
    admin.command("setParameter", 1, **{name: 100})
    try:
        refused(lambda: list(numbers.find({"$where": "while (true) {}"})), 139, "interrupted")
    finally:
        admin.command("setParameter", 1, **{name: 60_000})


def test_memory_is_bounded(db, numbers):
    admin = db.client.admin
    assert admin.command("getParameter", 1, jsHeapLimitMB=1)["jsHeapLimitMB"] == 1100
    admin.command("setParameter", 1, jsHeapLimitMB=64)
    try:
        for script in [
            "let a = []; while (true) a.push(new Array(1000).fill(1))",
            "let s = 'x'; while (true) s += s",
            "let m = new Map(); for (let i = 0; ; i++) m.set(i, {i})",
            "'x'.repeat(200 << 20)",
            "new Uint8Array(200 << 20)",
        ]:
            refused(lambda: list(numbers.find({"$where": script})), 139)
        # What fits is given it, though it begins with less.
        assert ids(numbers.find({"a": 1, "$where": "new Uint8Array(40 << 20).length > 0"})) == [1]
    finally:
        admin.command("setParameter", 1, jsHeapLimitMB=1100)
    refused(lambda: admin.command("setParameter", 1, jsHeapLimitMB=1), 2)


def test_the_heap_grows_for_many_small_values(db, numbers):
    db.wide.insert_one({"_id": 1, "a": 5, "items": [{"n": n, "s": str(n)} for n in range(100_000)]})
    assert ids(db.wide.find({"$where": "this.a == 5"})) == [1]
    many = "let a = []; for (let i = 0; i < 100000; i++) a.push({i}); return a.length == 100000"
    assert ids(numbers.find({"_id": 3, "$where": many})) == [3]


def test_a_full_heap_is_not_compiled_in(db, numbers):
    """The engine's compiler reads past what it has where the heap is full."""
    admin = db.client.admin
    admin.command("setParameter", 1, jsHeapLimitMB=64)
    try:
        fill = "let keep = []; try { for (;;) keep.push(new Uint8Array(5000)) } catch (e) {} "
        for compile in ["eval(text)", "new Function(text)", "(function* () {}).constructor(text)"]:
            attempt = f"s = null; try {{ s = new Uint8Array(n); {compile} }} catch (e) {{}}"
            body = (
                "function() { let s; const text = '(function*(){ yield* [1] })'; "
                f"{fill} for (let n = 0; n < 6000; n += 7) {{ {attempt} }} return 1 }}"
            )
            refused(lambda: list(numbers.aggregate([{"$project": {"x": function(body)}}])), 139, "Out of memory")
    finally:
        admin.command("setParameter", 1, jsHeapLimitMB=1100)
    assert computed(numbers, "function() { return eval('1 + 1') + new Function('return 1')() }") == 3.0


def test_a_group_has_what_its_state_takes(db):
    db.large.insert_many({"_id": n, "k": 1, "s": "x" * 16_000} for n in range(9_000))
    count = {
        "init": "function() { return 0 }",
        "accumulate": "function(state, s) { return state + s.length }",
        "accumulateArgs": ["$s"],
        "merge": "function(a, b) { return a + b }",
        "lang": "js",
    }
    stages = [{"$group": {"_id": "$k", "n": {"$accumulator": count}}}]
    assert list(db.large.aggregate(stages, allowDiskUse=False)) == [{"_id": 1, "n": 144_000_000.0}]
    reply = db.command(
        "mapReduce",
        "large",
        map=Code("function() { emit(this.k, {s: this.s, n: 1}) }"),
        reduce=Code("function(k, values) { return {s: '', n: Array.sum(values.map((v) => v.n))} }"),
        out={"inline": 1},
    )
    assert reply["results"] == [{"_id": 1, "value": {"s": "", "n": 9_000.0}}]


def test_globals_last_as_long_as_the_operation(db):
    db.keys.insert_many({"_id": n} for n in range(3_500))
    parts = {
        "map": Code("function() { emit(this._id, 1) }"),
        "reduce": Code("function(k, values) { return 1 }"),
        "finalize": Code("function() { return ++n }"),
        "scope": {"n": 0},
    }
    db.command("mapReduce", "keys", out="counted", **parts)
    assert sorted(document["value"] for document in db.counted.find()) == list(range(1, 3_501))
    count = function("function() { return globalThis.n = (globalThis.n || 0) + 1 }")
    db.keys.aggregate([{"$project": {"n": count}}, {"$out": "numbered"}])
    assert sorted(document["n"] for document in db.numbered.find()) == list(range(1, 3_501))


def test_the_time_of_a_call_is_that_of_one_call(db):
    db.some.insert_many({"_id": n} for n in range(300))
    sleeps = {
        "init": "function() { return 0 }",
        "accumulate": "function(state) { sleep(10); return state + 1 }",
        "accumulateArgs": [],
        "merge": "function(a, b) { return a + b }",
        "lang": "js",
    }
    stages = [{"$group": {"_id": None, "n": {"$accumulator": sleeps}}}]
    admin = db.client.admin
    name = "internalQueryJavaScriptFnTimeoutMillis"
    admin.command("setParameter", 1, **{name: 2_000})
    try:
        assert list(db.some.aggregate(stages)) == [{"_id": None, "n": 300.0}]
        refused(lambda: list(db.some.find({"$where": "sleep(60000)"})), 139, name)
    finally:
        admin.command("setParameter", 1, **{name: 60_000})


def test_nothing_stays_from_one_operation_to_the_next(numbers):
    leave = "globalThis.left = 1; Array.prototype.left = 1; Object.prototype.left = 1; return true"
    assert len(ids(numbers.find({"$where": leave}))) == 10
    look = "return typeof left === 'undefined' && [].left === undefined && ({}).left === undefined"
    assert len(ids(numbers.find({"$where": look}))) == 10


def test_a_script_has_no_way_out(numbers):
    for name in ["require", "process", "load", "std", "os", "fetch", "setTimeout", "Proxy", "db", "cat", "ls", "runProgram"]:
        assert computed(numbers, f"function() {{ return typeof {name} }}") == "undefined", name


HOSTILE = [
    "(function f() { f() })()",
    "(function f(n) { return [n].map(f) })(1)",
    "JSON.parse('['.repeat(1e6))",
    "let o = {}; for (let i = 0; i < 1e5; i++) o = {o}; return o",
    "let a = []; a[2 ** 32 - 2] = 1; return a.indexOf(5)",
    "Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)",
    "new Set((() => { let a = []; a.length = 2 ** 32 - 1; return a })())",
    "Object.defineProperty(Object.prototype, 'a', {set() { throw 1 }}); return {a: 1}",
    "Object.prototype.toString = null; Array.prototype.push = null; return [1]",
    "Symbol.prototype.x = 1; return Object.create(null)",
    "throw {toString() { throw {toString() { throw 1 }} }}",
    "throw null",
    "throw undefined",
    "return Object.assign(Object.create(ObjectId.prototype), {str: 'zz'})",
    "let d = Object.create(Date.prototype); return d",
    "let r = Object.create(RegExp.prototype); return r",
    "return new Function('return this')()",
    "(async function() { await 1 })(); return Promise.resolve(1)",
    "function* g() { yield* g() } return [...g()]",
    "return 2n ** 100000n > 1n",
    "'a'.padEnd(2 ** 30)",
    "new Array(2 ** 32 - 1).join('x')",
    "return Reflect.ownKeys(globalThis).map((k) => globalThis[k])",
    "globalThis.__proto__ = null; return 1",
    "delete globalThis.Array; delete globalThis.Object; return [1]",
    "return {__proto__: {inherited: 1}, ['__proto__']: 5}",
    "let b = BinData(0, ''); b.type = 999; return b",
    "return NumberDecimal('x'.repeat(1000))",
]


def test_hostile_scripts_are_errors_and_never_the_end(db, numbers):
    db.client.admin.command("setParameter", 1, jsHeapLimitMB=64)
    try:
        for script in HOSTILE:
            body = script if "return" in script or script.startswith("throw") else f"return {script}"
            try:
                computed(numbers, f"function() {{ {body} }}")
            except OperationFailure as failure:
                assert failure.code in (139, 16662, 17279, 17260), (script, failure)
    finally:
        db.client.admin.command("setParameter", 1, jsHeapLimitMB=1100)
    assert db.command("ping")["ok"] == 1


def test_random_scripts_keep_the_limits(db, numbers, seed):
    choose = random.Random(seed)

    def expression(depth):
        if depth == 0:
            return choose.choice(["1", "'x'", "this", "a", "[]", "{}", "null", "undefined", "-0.5", "/a*/", "Symbol()", "1n", "NaN"])
        inner = [expression(depth - 1) for _ in range(3)]
        return choose.choice(
            [
                "[{0}, {1}]",
                "({{a: {0}, [{1}]: {2}}})",
                "({0} + {1})",
                "(() => {0})()",
                "((a) => [a, {1}])({0})",
                "JSON.stringify({0})",
                "Object.keys({0})",
                "String({0}).repeat(1000)",
                "Array.from({{length: 1000}}, () => {0})",
                "new Map([[{0}, {1}]])",
                "[...({0})]",
                "({0})[{1}]",
                "tojson({0})",
                "NumberLong({0})",
                "Object.create({0})",
                "(function f() {{ return {0}, f() }})()",
                "({0} instanceof {1})",
                "Object.defineProperty({{}}, {0}, {{get() {{ return {1} }}, enumerable: true}})",
            ]
        ).format(*inner)

    db.client.admin.command("setParameter", 1, jsHeapLimitMB=32)
    try:
        for _ in range(300):
            body = f"function(a) {{ return {expression(choose.randrange(5))} }}"
            try:
                list(numbers.aggregate([{"$limit": 1}, {"$project": {"x": function(body, "$a")}}], maxTimeMS=2000))
            except ExecutionTimeout:
                pass
            except OperationFailure as failure:
                assert failure.code in (139, 16662, 17279, 17260, 16985), (body, failure)
    finally:
        db.client.admin.command("setParameter", 1, jsHeapLimitMB=1100)
    assert numbers.count_documents({}) == 10


# Switched off


@pytest.mark.parametrize("engine", ENGINES[:1])
@pytest.mark.parametrize("options", [[], ["--noscripting"]])
def test_a_server_without_scripting_refuses_scripts(tmp_path, engine, options):
    server = Server(tmp_path / "data", engine, options=options)
    server.start()
    db = server.client().test
    db.c.insert_one({"_id": 1})
    refused(lambda: list(db.c.find({"$where": "true"})), 6108304, "no globalScriptEngine in $where parsing")
    refused(lambda: computed(db.c, "function() { return 1 }"), 31264)
    refused(lambda: map_reduce(db, "c", "function() {}", "function() {}", {"inline": 1}), 31264)
    assert db.client.server_info()["javascriptEngine"] == "none"
    assert server.stop() == 0
