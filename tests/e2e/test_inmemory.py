"""What the inMemory engine heeds of its own: the bound of its memory."""

import pytest
from pymongo.errors import OperationFailure
from server import Server

OUT_OF_DISK_SPACE = 14031


def test_inserts_are_refused_beyond_the_bound_until_something_is_deleted(tmp_path):
    with Server(tmp_path / "data", engine="inMemory", options=["--inMemorySizeGB", "0.02"]) as server:
        c = server.client().db.c
        with pytest.raises(OperationFailure) as error:
            for i in range(4000):
                c.insert_one({"_id": i, "pad": "x" * 10_000})
        assert error.value.code == OUT_OF_DISK_SPACE and "inMemorySizeGB" in str(error.value), error.value
        count = c.count_documents({})
        assert 1500 < count < 2148
        c.update_one({"_id": 0}, {"$set": {"seen": True}})
        assert c.delete_many({"_id": {"$gte": 1, "$lt": 100}}).deleted_count == 99
        c.insert_one({"_id": "again"})
        assert c.count_documents({}) == count - 98
