"use strict";

// Throw-away servers for tests: a tenond of its own, on a free port, with an empty folder, in some milliseconds. It ends with
// `stop`, and with this process, however that ends. Its data are in memory and in a folder that is removed.

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const running = new Set();

/** The path of the tenond that this package carries; the variable TENOND names another one. */
function program() {
    return process.env.TENOND || path.join(__dirname, "bin", "tenond");
}

class Server {
    /**
     * Starts a server. With `replicaSet` it is a set of one member of that name, for transactions and change streams.
     * @param {{ engine?: string, replicaSet?: string, options?: string[] }} [settings]
     * @returns {Promise<Server>} It has `uri`, `port` and `directory`.
     */
    static async start(settings = {}) {
        const server = new Server();
        server.directory = fs.mkdtempSync(path.join(os.tmpdir(), "tenon-"));
        try {
            await server.#run(settings);
        } catch (error) {
            await server.stop();
            throw error;
        }
        return server;
    }

    #process = null;
    #ended = null;

    async #run({ engine = "inMemory", replicaSet, options = [] }) {
        const [data, log, port] = ["data", "tenond.log", "port"].map((name) => path.join(this.directory, name));
        fs.mkdirSync(data);
        const line = ["--dbpath", data, "--port", "0", "--bind_ip", "127.0.0.1", "--nounixsocket", "--storageEngine", engine];
        line.push("--logpath", log, "--stopWithParent", "--portFile", port);
        if (replicaSet) {
            line.push("--replSet", replicaSet, "--replSetInitiate", "--oplogSize", "64");
        } else {
            line.push("--nojournal", "--syncdelay", "0");
        }
        line.push(...options);
        running.add(this);
        // The file with the port appears, whole, when the server serves.
        const watcher = fs.watch(this.directory);
        try {
            this.port = await new Promise((resolve, reject) => {
                const look = () => fs.existsSync(port) && resolve(Number(fs.readFileSync(port, "ascii")));
                watcher.on("change", look);
                watcher.on("error", reject);
                const child = spawn(program(), line, { stdio: ["ignore", "ignore", "pipe"] });
                this.#process = child;
                let said = "";
                child.stderr.on("data", (text) => (said += text));
                child.on("error", reject);
                this.#ended = new Promise((over) => child.on("close", over));
                child.on("close", (code) => {
                    if (fs.existsSync(log)) {
                        said += fs.readFileSync(log, "utf8").split("\n").slice(-20).join("\n");
                    }
                    reject(new Error(`tenond ended with ${code}: ${said}`));
                });
                look();
            });
        } finally {
            watcher.close();
        }
        // A server that runs keeps no program from ending.
        this.#process.unref();
        this.#process.stderr.unref();
        this.uri = replicaSet
            ? `mongodb://localhost:${this.port}/?replicaSet=${encodeURIComponent(replicaSet)}`
            : `mongodb://127.0.0.1:${this.port}/`;
    }

    /** Ends the server and removes its folder. Nothing is saved, so that nothing is waited for. */
    async stop() {
        running.delete(this);
        if (this.#process?.pid) {
            this.#process.ref();
            this.#process.kill("SIGKILL");
            await this.#ended;
        }
        this.#process = null;
        this.#remove();
    }

    #remove() {
        fs.rmSync(this.directory, { recursive: true, force: true });
    }

    static endAll() {
        for (const server of running) {
            server.#process?.kill("SIGKILL");
            server.#remove();
        }
    }
}

process.on("exit", () => Server.endAll());

module.exports = { server: Server.start, program };
