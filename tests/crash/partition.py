"""A network between members that can be cut: each is reached through a port of this process, which knows who connects.

    python partition.py LISTEN:TARGET LISTEN:TARGET ...

Reads one JSON document a line: {"pids": [...]} says which process is which member, {"blocked": [[from, to], ...]} what does not
get through from now on, {"cut": true} closes the connections between members. What is blocked waits, as packets that are sent
again and again do, and arrives when the network is mended; clients are never blocked. Ends with its input.
"""

import asyncio
import json
import os
import socket
import struct
import sys

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20


class Network:
    def __init__(self, ports):
        self.ports = ports
        self.pids, self.blocked = [], set()
        self.changed = asyncio.Event()
        self.connections = {}

    async def wait_open(self, source, target):
        while (source, target) in self.blocked:
            await self.changed.wait()

    def member_of(self, port, listening):
        """The member whose process has the connection from `port`; None: a client's."""
        inode = inode_of(port, listening)
        for member, pid in enumerate(self.pids):
            try:
                for descriptor in os.scandir(f"/proc/{pid}/fd"):
                    try:
                        if inode and os.readlink(descriptor.path) == f"socket:[{inode}]":
                            return member
                    except OSError:
                        pass
            except OSError:
                pass
        return None

    async def accept(self, target, reader, writer):
        port, loop = writer.get_extra_info("peername")[1], asyncio.get_running_loop()
        source = await loop.run_in_executor(None, self.member_of, port, self.ports[target][0])
        task = asyncio.current_task()
        self.connections[task] = source
        try:
            await self.wait_open(source, target)
            there = await asyncio.open_connection("127.0.0.1", self.ports[target][1])
            try:
                pumps = [
                    asyncio.ensure_future(self.pump(reader, there[1], source, target)),
                    asyncio.ensure_future(self.pump(there[0], writer, target, source)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
            finally:
                there[1].close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.connections.pop(task, None)
            writer.close()

    async def pump(self, reader, writer, source, target):
        try:
            while data := await reader.read(1 << 16):
                await self.wait_open(source, target)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass

    def order(self, order):
        self.pids = order.get("pids", self.pids)
        if "blocked" in order:
            self.blocked = {tuple(pair) for pair in order["blocked"]}
            self.changed.set()
            self.changed = asyncio.Event()
        if order.get("cut"):
            for task in [task for task, source in self.connections.items() if source is not None]:
                task.cancel()


def inode_of(port, remote):
    """The socket of the connection from `port` to `remote` on this machine; 0 when it is gone."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as diagnosis:
            home = socket.inet_aton("127.0.0.1") + bytes(12)
            wanted = struct.pack("!HH", port, remote) + home + home + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
            request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + wanted
            diagnosis.send(struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, 1, 0, 0) + request)
            reply = diagnosis.recv(4096)
            return struct.unpack_from("=I", reply, 84)[0] if len(reply) >= 88 else 0
    except OSError:
        return inode_by_table(port, remote)


def inode_by_table(port, remote):
    """As `inode_of`, where the kernel answers no such questions. All connections of the machine are gone through."""
    with open("/proc/net/tcp") as lines:
        for line in lines:
            fields = line.split()
            if fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{remote:04X}"):
                return int(fields[9])
    return 0


async def main():
    network = Network([tuple(map(int, pair.split(":"))) for pair in sys.argv[1:]])
    for target, (listening, _) in enumerate(network.ports):

        def accept(reader, writer, target=target):
            return network.accept(target, reader, writer)

        await asyncio.start_server(accept, "127.0.0.1", listening)
    print("ready", flush=True)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        network.order(json.loads(line))
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
