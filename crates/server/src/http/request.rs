//! Reads the head of a request: RFC 9112, as far as a page needs it, and bounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longer heads are refused.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
/// More headers are refused.
const HEADERS_MAX: usize = 64;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `HEAD`: the headers of the answer only.
    pub head_only: bool,
    /// The path, without what follows a `?`.
    pub path: String,
    /// The host that the client wants to talk to, without its port.
    pub host: Option<String>,
    /// What it shows to prove who it is, as it was sent.
    pub authorization: Option<String>,
    /// Another request may follow.
    pub keeps_alive: bool,
}

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is not HTTP.
    Syntax,
    /// Its head is too long.
    TooLong,
    /// It has a body, which nothing here takes.
    HasBody,
    /// Neither `GET` nor `HEAD`.
    Method,
}

/// Reads a request from the bytes that have come: it and how many of them it is. `None` while it is not there whole.
///
/// # Errors
/// The connection is of no use any more.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Malformed::TooLong),
        Err(_) => return Err(Malformed::Syntax),
    };
    let head_only = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Malformed::Method),
    };
    let target = parsed.path.ok_or(Malformed::Syntax)?;
    let is_old = parsed.version == Some(0);
    let path = target.split(['?', '#']).next().unwrap_or_default().to_owned();
    let mut request = Request {
        head_only,
        path,
        host: None,
        authorization: None,
        keeps_alive: !is_old,
    };
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| Malformed::Syntax)?;
        request.take(header.name, value.trim())?;
    }
    // RFC 9112, 3.2: a request of this version without it is none.
    if request.host.is_none() && !is_old {
        return Err(Malformed::Syntax);
    }
    Ok(Some((request, length)))
}

impl Request {
    fn take(&mut self, name: &str, value: &str) -> Result<(), Malformed> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("host") {
            let host = host_of(value).ok_or(Malformed::Syntax)?;
            if self.host.replace(host).is_some() {
                return Err(Malformed::Syntax);
            }
        } else if is("authorization") {
            if self.authorization.replace(value.to_owned()).is_some() {
                return Err(Malformed::Syntax);
            }
        } else if is("connection") {
            let has = |wanted: &str| {
                let mut tokens = value.split(',');
                tokens.any(|token| token.trim().eq_ignore_ascii_case(wanted))
            };
            self.keeps_alive = !has("close") && (self.keeps_alive || has("keep-alive"));
        } else if is("transfer-encoding") || (is("content-length") && value != "0") {
            return Err(Malformed::HasBody);
        }
        Ok(())
    }

    /// Name and password of `Authorization: Basic` (RFC 7617).
    pub fn credentials(&self) -> Option<(String, String)> {
        let (scheme, encoded) = self.authorization.as_deref()?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
        let (name, password) = text.split_once(':')?;
        Some((name.to_owned(), password.to_owned()))
    }
}

/// `host` of `host:port` and `[host]:port`.
fn host_of(value: &str) -> Option<String> {
    let (host, rest) = match value.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => value.split_at(value.find(':').unwrap_or(value.len())),
    };
    let is_port = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|digit| digit.is_ascii_digit()),
        None => rest.is_empty(),
    };
    is_port.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<Request, Malformed> {
        parse(text.as_bytes()).map(|found| {
            let (request, length) = found.expect("it is whole");
            assert_eq!(length, text.len());
            request
        })
    }

    #[test]
    fn a_request_is_read() {
        let text = "GET /metrics?x=1 HTTP/1.1\r\nHost: DB1.example:9216\r\nAuthorization: Basic YW15OnB3OjE=\r\n\r\n";
        let request = whole(text).expect("it is one");
        assert_eq!(
            (request.path.as_str(), request.host.as_deref()),
            ("/metrics", Some("db1.example"))
        );
        assert_eq!(request.credentials(), Some(("amy".to_owned(), "pw:1".to_owned())));
        assert!(request.keeps_alive && !request.head_only);
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), Ok(None), "{end}");
        }
        // What follows is the next one's.
        let two = format!("{text}GET /");
        assert_eq!(
            parse(two.as_bytes()).expect("it is one").map(|(_, length)| length),
            Some(text.len())
        );
        assert_eq!(
            whole("HEAD / HTTP/1.1\r\nHost: [::1]:1\r\n\r\n").map(|it| (it.head_only, it.host)),
            Ok((true, Some("::1".to_owned())))
        );
    }

    #[test]
    fn connections_stay_open_as_long_as_both_want() {
        let keeps = |text: &str| whole(text).map(|request| request.keeps_alive);
        assert_eq!(keeps("GET / HTTP/1.0\r\n\r\n"), Ok(false));
        assert_eq!(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), Ok(true));
        assert_eq!(
            keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n"),
            Ok(false)
        );
    }

    #[test]
    fn what_is_none_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(HEAD_BYTES_MAX));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX));
        for (text, expected) in [
            ("\u{16}\u{3}\u{1}\u{2}", Malformed::Syntax),
            ("GET /\r\n\r\n", Malformed::Syntax),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Malformed::Syntax),
            ("GET / HTTP/1.1\r\n\r\n", Malformed::Syntax),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Malformed::Syntax),
            ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", Malformed::Syntax),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Malformed::Syntax),
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Method),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
                Malformed::HasBody,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                Malformed::HasBody,
            ),
            (&long, Malformed::TooLong),
            (&many, Malformed::TooLong),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(expected), "{text}");
        }
        assert_eq!(
            whole("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").map(|request| request.path),
            Ok("/".to_owned())
        );
    }

    /// Whatever comes, reading it ends in a request or in a reason.
    #[test]
    fn cut_and_changed_requests_do_no_harm() {
        let text =
            b"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Basic YTpi\r\nConnection: close\r\n\r\n";
        for position in 0..text.len() {
            for byte in [0, b' ', b':', b'\r', b'\n', b'[', 0x7F, 0xFF] {
                let mut changed = text.to_vec();
                changed[position] = byte;
                if let Ok(Some((request, length))) = parse(&changed) {
                    assert!(length <= changed.len());
                    let _ = request.credentials();
                }
            }
        }
    }
}
