//! The client's side of a SCRAM conversation, whose messages are described in `scram.rs`.

use super::{ScramError, attribute, text};
use crate::credentials::{ITERATIONS_MAX, secret_of};
use crate::mechanism::Mechanism;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

/// What RFC 7677 demands at least: fewer rounds would let a false server learn passwords.
const ITERATIONS_MIN: u32 = 4096;

/// A conversation that waits for the server's first message.
pub struct ClientConversation {
    mechanism: Mechanism,
    secret: String,
    nonce: String,
    /// The first message behind its header.
    bare: String,
}

/// What the server must know to be the one that has the user's credentials.
#[must_use]
pub struct ServerProof(Vec<u8>);

impl ClientConversation {
    /// The first message, and the conversation from there. `random` must be fresh for each conversation.
    ///
    /// # Errors
    /// `Password`, when it holds characters that SASLprep forbids.
    pub fn begin(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        random: &[u8; 24],
    ) -> Result<(String, Self), ScramError> {
        let secret = secret_of(mechanism, user, password).map_err(|_| ScramError::Password)?;
        let nonce = STANDARD.encode(random);
        let name = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={name},r={nonce}");
        let first = format!("n,,{bare}");
        let conversation = Self {
            mechanism,
            secret: secret.into_owned(),
            nonce,
            bare,
        };
        Ok((first, conversation))
    }

    /// Answers the server's first message with the proof, and tells what the server has to prove in turn.
    ///
    /// # Errors
    /// A message that is not the second of this conversation, or that asks for too few or too many rounds.
    pub fn prove(self, server_first: &[u8]) -> Result<(String, ServerProof), ScramError> {
        let server_first = text(server_first)?;
        let mut attributes = server_first.split(',');
        let nonce = attribute(attributes.next(), 'r')?;
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ScramError::Mismatch);
        }
        let salt = attribute(attributes.next(), 's')?;
        let salt = STANDARD.decode(salt).map_err(|_| ScramError::Attribute('s'))?;
        let iterations = attribute(attributes.next(), 'i')?.parse::<u32>().ok();
        let iterations = iterations
            .filter(|rounds| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(rounds))
            .ok_or(ScramError::Attribute('i'))?;
        let mechanism = self.mechanism;
        let salted = mechanism.stretch(self.secret.as_bytes(), &salt, iterations);
        let client_key = mechanism.hmac(&salted, b"Client Key");
        let without_proof = format!("c={},r={nonce}", STANDARD.encode("n,,"));
        let signed = format!("{},{server_first},{without_proof}", self.bare);
        let signature = mechanism.hmac(&mechanism.hash(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = mechanism.hmac(&salted, b"Server Key");
        let expected = mechanism.hmac(&server_key, signed.as_bytes());
        Ok((
            format!("{without_proof},p={}", STANDARD.encode(proof)),
            ServerProof(expected),
        ))
    }
}

impl ServerProof {
    /// Checks the server's last message.
    ///
    /// # Errors
    /// `Server`: it does not know the user's credentials, whoever it is.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ScramError> {
        let signature = attribute(Some(text(server_final)?), 'v').map_err(|_| ScramError::Server)?;
        let signature = STANDARD.decode(signature).map_err(|_| ScramError::Server)?;
        match bool::from(signature.ct_eq(&self.0)) {
            true => Ok(()),
            false => Err(ScramError::Server),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{ClientFirst, Credentials, Verdict};

    /// The conversation of RFC 7677, with the nonces that it names.
    fn of_the_rfc() -> ClientConversation {
        let (_, conversation) = ClientConversation::begin(Mechanism::ScramSha256, "user", "pencil", &[0; 24]).unwrap();
        ClientConversation {
            nonce: "rOprNGfwEbeRWgbNEkqO".to_owned(),
            bare: "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned(),
            ..conversation
        }
    }

    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_conversation_of_rfc_7677() {
        let (last, proof) = of_the_rfc().prove(SERVER_FIRST.as_bytes()).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(last, expected);
        assert_eq!(proof.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        for wrong in [
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=",
            "v=",
            "e=other-error",
            "",
            "v=AAAA",
        ] {
            assert_eq!(proof.verify(wrong.as_bytes()), Err(ScramError::Server), "{wrong}");
        }
    }

    #[test]
    fn what_a_false_server_sends_is_refused() {
        for (from, to) in [
            ("rOprNGfwEbeRWgbNEkqO%", "rOprNGfwEbeRWgbNEkqX%"),
            ("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""),
            ("i=4096", "i=4095"),
            ("i=4096", "i=4000000000"),
            ("i=4096", "i=-1"),
            ("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s=!"),
            ("s=W22ZaJ0SNY7soEsUEjb6gQ==,", ""),
        ] {
            let message = SERVER_FIRST.replace(from, to);
            assert!(of_the_rfc().prove(message.as_bytes()).is_err(), "{message}");
        }
        assert!(of_the_rfc().prove(&[0xFF]).is_err());
        assert!(of_the_rfc().prove(&[b'r'; 5000]).is_err());
    }

    #[test]
    fn both_sides_agree_on_every_name_and_password() {
        for mechanism in Mechanism::ALL {
            for (user, password) in [("amy", "pencil"), ("a=b,c", "x y"), ("größe", "пароль")] {
                let credentials = Credentials::of_password(mechanism, user, password, &[7; 16]).unwrap();
                let (first, client) = ClientConversation::begin(mechanism, user, password, &[1; 24]).unwrap();
                let first = ClientFirst::parse(first.as_bytes()).unwrap();
                assert_eq!(first.user(), user);
                let (server_first, server) = first.answer(credentials, &[2; 24]);
                let (last, proof) = client.prove(server_first.as_bytes()).unwrap();
                let Verdict::Proven(server_final) = server.finish(last.as_bytes()).unwrap() else {
                    panic!("{mechanism} {user}");
                };
                assert_eq!(proof.verify(server_final.as_bytes()), Ok(()));
            }
        }
    }
}
