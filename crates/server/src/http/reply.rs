//! Answers: a status, a few headers, and the content.

use super::request::Malformed;
use std::fmt::Write as _;

/// An answer.
pub struct Reply {
    status: (u16, &'static str),
    content_type: &'static str,
    content: Vec<u8>,
    /// Whole lines.
    more_headers: String,
    /// No other request may follow on this connection.
    pub closes: bool,
}

impl Reply {
    /// What was asked for.
    pub fn ok(content_type: &'static str, content: Vec<u8>) -> Self {
        Self {
            status: (200, "OK"),
            content_type,
            content,
            more_headers: String::new(),
            closes: false,
        }
    }

    /// A refusal, with a sentence.
    pub fn refusal(status: (u16, &'static str), sentence: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            content: format!("{sentence}\n").into_bytes(),
            more_headers: String::new(),
            closes: false,
        }
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.more_headers, "{name}: {value}\r\n");
        self
    }

    /// No other request is read behind one that was none.
    pub fn to_malformed(malformed: Malformed) -> Self {
        let refusal = match malformed {
            Malformed::Syntax => Self::refusal((400, "Bad Request"), "This is no HTTP request."),
            Malformed::TooLong => Self::refusal(
                (431, "Request Header Fields Too Large"),
                "The head of the request is too long.",
            ),
            Malformed::HasBody => Self::refusal((413, "Content Too Large"), "Requests have no body here."),
            Malformed::Method => Self::refusal((405, "Method Not Allowed"), "There is only GET and HEAD.")
                .with_header("Allow", "GET, HEAD"),
        };
        Self {
            closes: true,
            ..refusal
        }
    }

    /// The bytes to send.
    pub fn to_bytes(&self, head_only: bool, keeps_alive: bool) -> Vec<u8> {
        let (number, reason) = self.status;
        let connection = if keeps_alive { "keep-alive" } else { "close" };
        // Of other pages none may show this one in a frame, read it, or take it for something else.
        let head = format!(
            "HTTP/1.1 {number} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n{}\r\n",
            self.content_type,
            self.content.len(),
            self.more_headers
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend_from_slice(&self.content);
        }
        bytes
    }
}
