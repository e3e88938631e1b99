//! What somebody may have meant who wrote a name that there is not.

/// The name that is nearest to `written`, if it is near; capitals and small letters are the same.
pub fn nearest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let written = written.to_lowercase();
    let edits_max = (written.chars().count() / 3).min(3);
    names
        .into_iter()
        .map(|name| (edits(&written, &name.to_lowercase()), name))
        .filter(|(edits, name)| *edits <= edits_max && !name.is_empty())
        .min()
        .map(|(_, name)| name)
}

/// ` Did you mean X?`, or nothing.
pub fn question<'n>(written: &str, names: impl IntoIterator<Item = &'n str>, prefix: &str) -> String {
    nearest(written, names).map_or_else(String::new, |name| format!("; did you mean {prefix}{name}?"))
}

/// The least number of letters to add, remove, change or swap with a neighbour (the optimal string alignment distance).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["dbpath", "port", "bind_ip", "logpath", "storageEngine"];
        for (written, meant) in [
            ("dbPath", Some("dbpath")),
            ("db-path", Some("dbpath")),
            ("dpbath", Some("dbpath")),
            ("prot", Some("port")),
            ("bindip", Some("bind_ip")),
            ("storageengin", Some("storageEngine")),
            ("nonesuch", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, names), meant, "{written}");
        }
    }
}
