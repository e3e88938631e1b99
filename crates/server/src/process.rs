//! The program: what a server's `main` does, whichever engines it has.

use crate::config::{self, Task};
use crate::engines::Registry;
use crate::{daemon, encryption, repair, run};
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Exit code for a configuration that is refused.
const EXIT_BAD_OPTIONS: u8 = 2;

/// Reads the program's arguments and does what they say, with engines of this registry.
pub fn main(engines: &Registry) -> ExitCode {
    let argv: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let arguments = argv.get(1..).unwrap_or_default();
    // Whatever is created is the owner's alone, by libraries, too. The socket and the process id's file get their own
    // bits.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let current_directory = std::env::current_dir().unwrap_or_else(|_| "/".into());
    match config::task(arguments, &current_directory) {
        Ok(Task::Print(text)) => print(&text),
        Ok(Task::PrintVersion) => print(&config::version(engines)),
        Ok(Task::Shutdown(db_path)) => daemon::shutdown(&vfs::RealFs::new(), &db_path),
        Ok(Task::Rotate(config, task)) => encryption::rotate(&config, &task),
        Ok(Task::Repair(config)) => repair::run(&config, engines),
        Ok(Task::Serve(config)) if config.fork && !daemon::is_child() => daemon::launch(arguments),
        Ok(Task::Serve(config)) => {
            if config.fork {
                daemon::detach();
            }
            run::run(&config, argv, engines)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_BAD_OPTIONS)
        }
    }
}

/// Prints what was asked for. A reader that has seen enough, such as `head`, is no error.
fn print(text: &str) -> ExitCode {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "cannot print: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
