//! Messages of consensus as they flow between members: a stream of bytes that commands cut anywhere.
//!
//! The command is in `command/member_streams.rs`.

/// No message is as long: what claims to be is no stream.
const STREAM_BYTES_MAX: usize = 256 << 20;

/// The receiver's end of a stream of messages, each behind its length.
#[derive(Default)]
pub struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes the next piece, and hands over the messages that are whole.
    pub fn take(&mut self, is_first: bool, piece: &[u8], put: &mut dyn FnMut(&[u8])) {
        if is_first || self.bytes.len() > STREAM_BYTES_MAX {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(piece);
        let mut at = 0;
        while let Some(length) = self.bytes.get(at..at + 4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some(message) = self.bytes.get(at + 4..at + 4 + length) else {
                break;
            };
            put(message);
            at += 4 + length;
        }
        self.bytes.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1], vec![2; 300], vec![], vec![3; 5]];
        let mut stream = Vec::new();
        for message in &messages {
            stream.extend_from_slice(&(message.len() as u32).to_le_bytes());
            stream.extend_from_slice(message);
        }
        for cut in 0..=stream.len() {
            let mut assembly = Assembly::default();
            let mut found = Vec::new();
            assembly.take(true, b"what another connection left", &mut |_| {});
            let mut put = |message: &[u8]| found.push(message.to_vec());
            assembly.take(true, &stream[..cut], &mut put);
            assembly.take(false, &stream[cut..], &mut put);
            assert_eq!(found, messages, "cut at {cut}");
        }
    }
}
