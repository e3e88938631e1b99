//! JSON of one line over several, for people.

/// Appends `json`, as [`crate::write()`] makes it, with a line for each field and item, and a tab for each level.
pub fn indent(json: &str, out: &mut String) {
    let mut depth = 0usize;
    let mut is_text = false;
    let mut is_escaped = false;
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        if is_text {
            out.push(character);
            (is_escaped, is_text) = match character {
                '\\' if !is_escaped => (true, true),
                '"' => (false, is_escaped),
                _ => (false, true),
            };
            continue;
        }
        match character {
            '"' => {
                is_text = true;
                out.push(character);
            }
            '{' | '[' => {
                out.push(character);
                if let Some(close) = characters.next_if(|&next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    new_line(depth, out);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, out);
                out.push(character);
            }
            ',' => {
                out.push(character);
                new_line(depth, out);
            }
            ':' => out.push_str(": "),
            other => out.push(other),
        }
    }
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n('\t', depth));
}
