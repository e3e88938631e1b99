//! `security.enableEncryption`: where the master key comes from, and rotating keys.

use crate::config::Config;
use crate::data_directory::{self, Rotation};
use crate::engines::Registry;
use crate::key_file;
use commands::EncryptionStatus;
use crypt::{Keys, MasterKey};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use zeroize::Zeroizing;

/// The mode there is.
pub const CIPHER_MODE: &str = "AES256-GCM";
/// A longer text is no key.
const KEY_TEXT_BYTES_MAX: u64 = 1024;
/// So long the key command may take to print the key.
const COMMAND_PATIENCE: Duration = Duration::from_secs(60);
/// So long it may take to end when its output has.
const COMMAND_END_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const COMMAND_END_SLICE: Duration = Duration::from_millis(10);

/// The key command did not bring a key. What it asks may not answer yet.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct KeyCommandFailed(String);

/// Where a master key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// `security.encryptionKeyFile`.
    File(PathBuf),
    /// `security.encryptionKeyCommand`: a program and its arguments, with white space between. No shell sees them.
    Command(String),
}

impl KeySource {
    /// Gets the key.
    ///
    /// # Errors
    /// A sentence, without anything of the key.
    pub fn load(&self) -> Result<MasterKey, String> {
        let text = match self {
            Self::File(path) => key_file::read_private("encryptionKeyFile", path, KEY_TEXT_BYTES_MAX)?,
            Self::Command(command) => output_of(command)?,
        };
        MasterKey::parse(&text).map_err(|error| match self {
            Self::File(path) => format!("encryptionKeyFile {}: {error}", path.display()),
            Self::Command(_) => format!("encryptionKeyCommand: what it printed {error}"),
        })
    }
}

/// The key from there, if one is given.
///
/// # Errors
/// As [`KeySource::load`].
pub(crate) fn load(source: Option<&KeySource>) -> anyhow::Result<Option<MasterKey>> {
    source.map(KeySource::load).transpose().map_err(anyhow::Error::msg)
}

/// What a program prints.
fn output_of(command: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("encryptionKeyCommand: {reason}");
    let mut words = command.split_whitespace();
    let program = words.next().ok_or_else(|| failed(&"names no program"))?;
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&format_args!("cannot start {program}: {error}")))?;
    let stdout = child.stdout.take().ok_or_else(|| failed(&"has no output"))?;
    let (sender, read) = channel();
    let reader = std::thread::spawn(move || {
        let mut text = Zeroizing::new(Vec::with_capacity(KEY_TEXT_BYTES_MAX as usize + 1));
        let result = stdout.take(KEY_TEXT_BYTES_MAX + 1).read_to_end(&mut text);
        let _ = sender.send(result.map(|_| text));
    });
    let text = read.recv_timeout(COMMAND_PATIENCE);
    let is_long = matches!(&text, Ok(Ok(text)) if text.len() as u64 > KEY_TEXT_BYTES_MAX);
    if text.is_err() || is_long {
        let _ = child.kill();
    }
    let ended = wait_for_end(&mut child).map_err(|error| failed(&error))?;
    let text = match text {
        Ok(text) => text.map_err(|error| failed(&error))?,
        Err(_) => return Err(failed(&format_args!("took more than {} s", COMMAND_PATIENCE.as_secs()))),
    };
    let _ = reader.join();
    if is_long {
        return Err(failed(&"printed more than 1 KiB"));
    }
    match ended {
        Some(status) if status.success() => Ok(text),
        Some(status) => Err(failed(&format_args!("{program} ended with {status}"))),
        None => Err(failed(&format_args!(
            "{program} closed its output and did not end within {} s",
            COMMAND_END_PATIENCE.as_secs()
        ))),
    }
}

/// Waits until a program has ended whose output has, or which was killed. One that goes on is killed: `None`.
fn wait_for_end(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let slices = COMMAND_END_PATIENCE.as_millis() / COMMAND_END_SLICE.as_millis();
    for _ in 0..slices {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::park_timeout(COMMAND_END_SLICE);
    }
    child.kill()?;
    child.wait().map(|_| None)
}

/// The master key, where encryption is switched on and the engine carries it. To be asked before anything is made or
/// changed.
///
/// # Errors
/// A sentence.
pub(crate) fn master_key(config: &Config, registry: &Registry, engine: &str) -> anyhow::Result<Option<MasterKey>> {
    let Some(source) = &config.encryption else {
        return Ok(None);
    };
    registry.check_encryption(engine).map_err(anyhow::Error::msg)?;
    source.load().map(Some).map_err(|reason| match source {
        KeySource::File(_) => anyhow::Error::msg(reason),
        KeySource::Command(_) => KeyCommandFailed(reason).into(),
    })
}

/// What `serverStatus` tells.
pub(crate) fn status(config: &Config, keys: &Keys) -> EncryptionStatus {
    EncryptionStatus {
        cipher_mode: CIPHER_MODE.to_owned(),
        key_generation: keys.generation(),
        key_store: config.storage.db_path.join(data_directory::KEY_STORE_FILE),
    }
}

/// What `--encryptionRotateMasterKey` or `--encryptionRotateDataKey` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationTask {
    /// Wrap the data keys with the key from there.
    Master(KeySource),
    /// Add a data key.
    Data,
}

/// Rotates, tells, and answers the exit code.
pub fn rotate(config: &Config, task: &RotationTask) -> ExitCode {
    match try_to_rotate(&config.storage.db_path, config.encryption.as_ref(), task) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}

fn try_to_rotate(db_path: &Path, source: Option<&KeySource>, task: &RotationTask) -> Result<String, String> {
    let source = source.ok_or("the master key has to be given: --enableEncryption with --encryptionKeyFile")?;
    let fs = vfs::RealFs::new();
    let master = source.load()?;
    let done = |rotation: Rotation<'_>| {
        let rotated = data_directory::rotate(&fs, db_path, &master, &rotation).map_err(|error| error.to_string())?;
        let follows = rotated.copy_failed.map_or_else(String::new, |error| {
            format!(". The second copy of the key store follows at the next start: {error}")
        });
        Ok::<_, String>((rotated.generations, follows))
    };
    Ok(match task {
        RotationTask::Master(new) => {
            let new = new.load()?;
            let (_, follows) = done(Rotation::Master(&new))?;
            format!("the data keys are wrapped with the new master key: start with that from now on{follows}")
        }
        RotationTask::Data => {
            let (generations, follows) = done(Rotation::Data)?;
            format!("what is written from the next start on is sealed with data key {generations}{follows}")
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn file(directory: &Path, text: &str, mode: u32) -> PathBuf {
        let path = directory.join("key");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_key_comes_from_a_file_that_is_the_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let load = |text: &str, mode| KeySource::File(file(directory.path(), text, mode)).load();
        let expected = MasterKey::parse(KEY.as_bytes()).unwrap().id();
        for mode in [0o600, 0o400] {
            assert_eq!(load(&format!("{KEY}\n"), mode).unwrap().id(), expected);
        }
        for mode in [0o640, 0o604, 0o660] {
            let error = load(KEY, mode).unwrap_err();
            assert!(error.contains("permissions") && !error.contains("AQEB"), "{error}");
        }
        for text in ["", "AQEB", "no key"] {
            let error = load(text, 0o600).unwrap_err();
            assert!(
                error.starts_with("encryptionKeyFile ") && !error.contains("AQEB"),
                "{error}"
            );
        }
        assert!(load(&"A".repeat(2000), 0o600).unwrap_err().contains("longer"));
        let missing = KeySource::File(directory.path().join("none")).load().unwrap_err();
        assert!(missing.contains("No such file"), "{missing}");
    }

    // Programs are started by tests/e2e/test_encryption.py: a child that is about to begin holds the locks of other
    // tests here.
}
