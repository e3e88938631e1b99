//! The built server as a process: start, raw messages, signals, refusals, crash, background.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use bson::{Document, doc};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use wire::{Form, Header, Message, MsgFlags, OpCode};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tenond");

pub(crate) struct Tenond {
    child: Child,
    output: BufReader<ChildStdout>,
    lines: Vec<String>,
    port: u16,
}

fn command(db_path: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(["--storageEngine", "inMemory", "--port", "0", "--dbpath"])
        .arg(db_path);
    command.arg("--unixSocketPrefix").arg(db_path).args(more);
    command
}

fn output(db_path: &Path, more: &[&str]) -> Output {
    command(db_path, more).output().unwrap()
}

impl Tenond {
    pub(crate) fn start(db_path: &Path, more: &[&str]) -> Self {
        let mut child = command(db_path, more).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self {
            child,
            output,
            lines: Vec::new(),
            port: 0,
        };
        let ready = server.line_with("\"id\":23016,");
        let port = ready.split("\"port\":").nth(1).unwrap();
        server.port = port
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse()
            .unwrap();
        server
    }

    /// Reads log lines up to one that contains the text.
    fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "no line with {text} in {:#?}", self.lines);
            self.lines.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn exit_code(mut self) -> i32 {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Tenond {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Connection(TcpStream);

impl Connection {
    fn send(&mut self, header: Header, body: &[u8]) {
        self.0.write_all(&[&header.to_bytes()[..], body].concat()).unwrap();
    }

    fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        let header = Header::parse(&head).unwrap();
        let mut message = head.to_vec();
        message.resize(header.length, 0);
        self.0.read_exact(&mut message[16..]).unwrap();
        (header, message)
    }

    fn run(&mut self, command: Document) -> Document {
        let mut out = Vec::new();
        let form = Form::Msg { checksum: false };
        wire::begin(form, &mut out);
        out.extend_from_slice(&command.to_vec().unwrap());
        wire::finish(form, &mut out, 0, 1, 0, MsgFlags::default()).unwrap();
        self.0.write_all(&out).unwrap();
        let (header, message) = self.receive();
        let Ok(Message::Msg(msg)) = Message::parse(&header, &message) else {
            panic!("not an OP_MSG")
        };
        msg.body.try_into().unwrap()
    }

    pub(crate) fn ok(&mut self, command: Document) -> Document {
        let reply = self.run(command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        reply
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn handshake_ping_and_orderly_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = Tenond::start(directory.path(), &[]);
    let mut connection = server.connect();
    let hello = doc! { "isMaster": 1, "helloOk": true }.to_vec().unwrap();
    let body = [&[0; 4], &b"admin.$cmd\0"[..], &[0; 4], &[0xFF; 4], &hello].concat();
    connection.send(
        Header {
            length: 16 + body.len(),
            request_id: 9,
            response_to: 0,
            op_code: OpCode::Query,
        },
        &body,
    );
    let (header, message) = connection.receive();
    assert_eq!((header.op_code, header.response_to), (OpCode::Reply, 9));
    let reply = Document::from_reader(&message[36..]).unwrap();
    assert!(reply.get_bool("helloOk").unwrap(), "{reply}");
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 25);
    connection.ok(doc! { "ping": 1, "$db": "admin" });
    let options = connection.ok(doc! { "getCmdLineOpts": 1, "$db": "admin" });
    assert_eq!(
        options
            .get_document("parsed")
            .unwrap()
            .get_document("net")
            .unwrap()
            .get_i32("port")
            .unwrap(),
        0
    );
    let warnings = connection.ok(doc! { "getLog": "startupWarnings", "$db": "admin" });
    assert!(
        warnings
            .get_array("log")
            .unwrap()
            .iter()
            .any(|line| line.to_string().contains("Access control"))
    );
    server.signal("TERM");
    assert_eq!(server.exit_code(), 0);
    assert_eq!(std::fs::read(directory.path().join("tenond.lock")).unwrap(), b"\n");
    assert!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .all(|entry| !text(entry.unwrap().path().as_os_str().as_encoded_bytes()).ends_with(".sock"))
    );
}

#[test]
fn hostile_bytes_close_one_connection_only() {
    let directory = tempfile::tempdir().unwrap();
    let server = Tenond::start(directory.path(), &[]);
    let mut good = server.connect();
    for bytes in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0xFF; 64],
        &[16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xDC, 7, 0, 0],
    ] {
        let mut bad = server.connect();
        bad.0.write_all(bytes).unwrap();
        assert!(matches!(bad.0.read(&mut [0; 1]), Ok(0) | Err(_)));
        good.ok(doc! { "ping": 1, "$db": "admin" });
    }
    let reply = good.run(doc! { "frobnicate": 1, "$db": "admin" });
    assert_eq!(reply.get_i32("code").unwrap(), 59);
}

/// What was acknowledged with j: true is there after kill -9, and the next start says that the end was unclean.
#[test]
fn acknowledged_writes_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let server = Tenond::start(directory.path(), &[]);
    let mut connection = server.connect();
    for i in 0..20 {
        connection
            .ok(doc! { "insert": "things", "documents": [{ "_id": i }], "writeConcern": { "j": true }, "$db": "test" });
    }
    server.signal("KILL");
    assert_eq!(server.exit_code(), -1);
    let mut server = Tenond::start(directory.path(), &[]);
    assert!(
        server
            .lines
            .iter()
            .any(|line| line.contains("Detected unclean shutdown"))
    );
    let mut connection = server.connect();
    assert_eq!(
        connection
            .ok(doc! { "count": "things", "$db": "test" })
            .get_i32("n")
            .unwrap(),
        20
    );
    connection.ok(doc! { "shutdown": 1, "$db": "admin" });
    server.line_with("\"exitCode\":0");
    assert_eq!(server.exit_code(), 0);
    let server = Tenond::start(directory.path(), &[]);
    assert!(
        !server
            .lines
            .iter()
            .any(|line| line.contains("Detected unclean shutdown"))
    );
    assert_eq!(
        server
            .connect()
            .ok(doc! { "count": "things", "$db": "test" })
            .get_i32("n")
            .unwrap(),
        20
    );
}

#[test]
fn refusals_have_their_exit_codes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let result = output(path, &["--tlsMode", "requireTLS"]);
    assert_eq!(result.status.code(), Some(2));
    assert!(text(&result.stderr).contains("need tlsCertificateKeyFile"));
    let result = output(&path.join("nowhere"), &[]);
    assert_eq!(result.status.code(), Some(100));
    assert!(text(&result.stdout).contains("nowhere not found. Create the missing directory"));
    let result = Command::new(PROGRAM)
        .args(["--storageEngine", "devnull", "--dbpath"])
        .arg(path)
        .output()
        .unwrap();
    assert_eq!(result.status.code(), Some(100));
    assert!(text(&result.stdout).contains("Unknown storage engine 'devnull'"));
    assert!(!path.join("tenond.lock").exists(), "a refused start leaves nothing");

    let server = Tenond::start(path, &[]);
    let result = output(path, &[]);
    assert_eq!(result.status.code(), Some(100));
    assert!(text(&result.stdout).contains("Another tenond instance is already running"));
    let other = tempfile::tempdir().unwrap();
    let port = server.port.to_string();
    let result = Command::new(PROGRAM)
        .args([
            "--storageEngine",
            "inMemory",
            "--nounixsocket",
            "--port",
            &port,
            "--dbpath",
        ])
        .arg(other.path())
        .output()
        .unwrap();
    assert_eq!(result.status.code(), Some(48));
    assert!(text(&result.stdout).contains("Failed to set up listener"));
    assert_eq!(
        std::fs::read(other.path().join("tenond.lock")).unwrap(),
        b"\n",
        "the storage was closed cleanly"
    );
}

#[test]
fn options_that_an_engine_lacks_give_warnings() {
    let directory = tempfile::tempdir().unwrap();
    let server = Tenond::start(directory.path(), &["--directoryperdb", "--nojournal"]);
    for text in ["storage.directoryPerDB has no effect", "Journaling is off"] {
        assert!(
            server
                .lines
                .iter()
                .any(|line| line.contains(text) && line.contains("startupWarnings")),
            "{text}"
        );
    }
}

#[test]
fn the_log_file_rotates_on_sigusr1() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let pid_file = directory.path().join("pid");
    let options = [
        "--logpath",
        log.to_str().unwrap(),
        "--pidfilepath",
        pid_file.to_str().unwrap(),
        "--fork",
    ];
    let result = output(&data, &options);
    assert!(result.status.success(), "{result:?}");
    assert!(text(&result.stdout).contains("child process started successfully, parent exiting"));
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    assert!(text(&result.stdout).contains(&format!("forked process: {}", pid.trim())));
    assert!(
        Command::new("kill")
            .args(["-USR1", pid.trim()])
            .status()
            .unwrap()
            .success()
    );
    let rotated = || std::fs::read_dir(directory.path()).unwrap().count() == 4;
    for _ in 0..10_000 {
        if rotated() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    assert!(rotated(), "log, rotated log, data, pid");
    let result = Command::new(PROGRAM)
        .args(["--shutdown", "--dbpath"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(result.status.success(), "{result:?}");
    assert!(!pid_file.exists());
    assert!(std::fs::read_to_string(&log).unwrap().contains("\"exitCode\":0"));
    let result = Command::new(PROGRAM)
        .args(["--shutdown", "--dbpath"])
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(result.status.code(), Some(1));
    assert!(text(&result.stderr).contains("There doesn't seem to be a server running with dbpath"));
}

#[test]
fn a_start_in_the_background_that_fails_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let result = output(
        &directory.path().join("nowhere"),
        &["--fork", "--logpath", log.to_str().unwrap()],
    );
    assert_eq!(result.status.code(), Some(100));
    assert!(text(&result.stdout).contains("ERROR: child process failed, exited with 100"));
    assert!(std::fs::read_to_string(&log).unwrap().contains("nowhere not found"));
}
