"""Validators: what drivers are told, and that they outlive restarts and dumps."""

import os
import subprocess

import pytest
from pymongo import InsertOne, UpdateOne, WriteConcern
from pymongo.errors import BulkWriteError, OperationFailure, WriteError
from server import ENGINES, Server, binary

SCHEMA = {
    "bsonType": "object",
    "required": ["name", "address"],
    "properties": {
        "name": {"bsonType": "string", "minLength": 1, "description": "what people call it"},
        "address": {"bsonType": "object", "required": ["city"], "properties": {"city": {"enum": ["Rome", "Oslo"]}}},
        "tags": {"bsonType": "array", "uniqueItems": True, "items": {"bsonType": "string"}},
    },
}
RIGHT = {"name": "x", "address": {"city": "Rome"}}


def test_what_breaks_a_schema_is_told(db):
    shops = db.create_collection("shops", validator={"$jsonSchema": SCHEMA, "open": {"$ne": False}})
    shops.insert_one(dict(RIGHT))
    with pytest.raises(WriteError) as refused:
        shops.insert_one({"_id": 7, "address": {"city": "Paris"}, "tags": ["a", 1]})
    details = refused.value.details["errInfo"]
    assert refused.value.code == 121 and details["failingDocumentId"] == 7
    clause = details["details"]["clausesNotSatisfied"][0]["details"]
    rules = {rule["operatorName"]: rule for rule in clause["schemaRulesNotSatisfied"]}
    assert rules["required"]["missingProperties"] == ["name"]
    wrong = {of["propertyName"]: of["details"][0]["operatorName"] for of in rules["properties"]["propertiesNotSatisfied"]}
    assert wrong == {"address": "properties", "tags": "items"}
    with pytest.raises(BulkWriteError) as several:
        writes = [InsertOne({}), UpdateOne({"name": "x"}, {"$set": {"open": False}}), InsertOne(dict(RIGHT))]
        shops.bulk_write(writes, ordered=False)
    assert [error["code"] for error in several.value.details["writeErrors"]] == [121, 121]
    assert shops.count_documents({"$jsonSchema": SCHEMA}) == 2
    assert shops.bulk_write([InsertOne({"_id": 1})], bypass_document_validation=True).inserted_count == 1
    with pytest.raises(OperationFailure) as bad:
        db.command("collMod", "shops", validator={"$jsonSchema": {"bsonType": "nonesuch"}})
    assert bad.value.code in (2, 9)


@pytest.mark.parametrize("engine", ENGINES)
def test_they_outlive_restarts_and_dumps(tmp_path, engine):
    server = Server(tmp_path / "a", engine)
    server.start()
    shops = server.client().shop.create_collection("shops", validator={"$jsonSchema": SCHEMA}, validationLevel="moderate")
    shops.with_options(write_concern=WriteConcern(j=True)).insert_one({**RIGHT, "_id": 1})
    for how in (server.kill, server.stop):
        how()
        server.start()
        shops = server.client().shop.shops
        with pytest.raises(WriteError):
            shops.update_one({"_id": 1}, {"$unset": {"name": 1}})
    tool = os.path.join(os.path.dirname(binary()), "tenon")
    target = Server(tmp_path / "b", engine)
    target.start()
    for words in (["dump", "--port", server.port], ["restore", "--port", target.port]):
        done = subprocess.run([tool, *map(str, words), f"--archive={tmp_path}/dump"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    copied = target.client().shop.shops
    assert copied.options() == shops.options() and copied.options()["validationLevel"] == "moderate"
    with pytest.raises(WriteError):
        copied.insert_one({})
