//! CSV that a strict reader understands.

use crate::fixture;
use report::csv;

/// RFC 4180: records of fields, quoted or not.
fn parse(text: &str) -> Vec<Vec<String>> {
    let mut records = vec![Vec::new()];
    let mut field = String::new();
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => records
                .last_mut()
                .expect("there is one")
                .push(std::mem::take(&mut field)),
            '\r' if !quoted => {
                assert_eq!(chars.next(), Some('\n'));
                records
                    .last_mut()
                    .expect("there is one")
                    .push(std::mem::take(&mut field));
                records.push(Vec::new());
            }
            c => field.push(c),
        }
    }
    assert_eq!(records.pop(), Some(Vec::new()), "the text ends with a line's end");
    records
}

#[test]
fn one_line_per_run_and_operation() {
    let mut session = fixture::session(1, 1.0);
    session.runs[0].configuration.label = "a \"quoted\", label\nof two lines".to_owned();
    session.runs[1].operations.clear();
    let records = parse(&csv(&session));
    let expected: usize = session.runs.iter().map(|run| run.operations.len().max(1)).sum();
    assert_eq!(records.len(), expected + 1);
    assert!(records.iter().all(|record| record.len() == records[0].len()));
    let column = |name: &str| records[0].iter().position(|head| head == name).expect("it is a column");
    assert_eq!(records[1][column("configuration")], session.runs[0].configuration.label);
    let run = &session.runs[0];
    let insert = &run.operations["insert"];
    let number = |name: &str| records[1][column(name)].parse::<f64>().expect("it is a number");
    assert_eq!(number("count"), insert.count as f64);
    assert_eq!(
        number("p99.9_us"),
        insert.latency.as_ref().expect("it was timed").p999_ns as f64 / 1e3
    );
    assert_eq!(
        number("server_cpu_us_per_operation"),
        run.server_cpu_us_per_operation().expect("it is known")
    );
    assert_eq!(
        number("max_us"),
        insert.latency.as_ref().expect("it was timed").max_ns as f64 / 1e3
    );
    let failed = records
        .iter()
        .find(|record| record[column("outcome")].starts_with("failed: "))
        .expect("one failed");
    assert!(failed[column("outcome")].contains("signal 9"));
}
