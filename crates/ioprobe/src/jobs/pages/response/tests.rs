//! Responses whole, cut off, and made to mislead.

use super::*;

/// The response in pieces of so many bytes.
fn fed(text: &[u8], piece: usize) -> Outcome<Response> {
    let mut response = Response::new(1 << 20);
    for bytes in text.chunks(piece) {
        response.take(bytes)?;
    }
    Ok(response)
}

fn fault(text: &[u8]) -> String {
    match fed(text, 7) {
        Err(fault) => fault,
        Ok(mut response) => response.closed().unwrap_err(),
    }
}

#[test]
fn a_body_comes_whole_however_it_is_cut() {
    let cases: [(&[u8], &[u8], bool); 5] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", true),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nA: b\r\n\r\n", b"hello", true),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"", true),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", false),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\nConnection: close\n\nhi", b"hi", false),
    ];
    for (text, body, keeps) in cases {
        for piece in [1, 2, 3, 5, 1000] {
            let response = fed(text, piece).unwrap();
            assert!(response.is_done());
            assert_eq!((&response.body[..], response.keeps_open()), (body, keeps));
            assert_eq!(response.received, text.len() as u64);
        }
    }
}

#[test]
fn without_a_length_the_body_ends_where_the_server_closes() {
    let mut response = fed(b"HTTP/1.1 200 OK\r\n\r\nsome text", 4).unwrap();
    assert!(!response.is_done());
    response.closed().unwrap();
    assert!(response.is_done() && !response.keeps_open());
    assert_eq!(response.body, b"some text");
}

#[test]
fn what_a_server_may_not_say_is_a_fault_that_says_what() {
    for (text, words) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"[..],
            "2 of 9",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhis",
            "more than",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
            "contradict",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "contradict",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "no number",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "nobody asked",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "without a size",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "longer",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "middle",
        ),
        (b"HTTP/1.1 200 OK\r\nNoColon\r\n\r\n", "without a name"),
        (b"HTTP/2 200 OK\r\n\r\n", "no status line"),
        (b"SSH-2.0-OpenSSH\r\n", "no status line"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "no status line"),
        (b"HTTP/1.1 101 Up\r\n\r\n", "protocol"),
        (b"HTTP/1.1 20", "middle"),
        (b"", "without a response"),
    ] {
        let found = fault(text);
        assert!(found.contains(words), "{found}");
    }
}

#[test]
fn what_has_no_end_is_a_fault_at_a_limit() {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    head.extend((0..6000).flat_map(|_| b"X: aaaaaaaaaaaa\r\n".iter().copied()));
    assert!(fault(&head).contains("head of more than"));
    let line = vec![b'H'; MOST_HEAD + 1];
    assert!(fault(&line).contains("head of more than"));
    let mut body = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    body.resize(body.len() + (1 << 20) + 1, b'x');
    assert!(fault(&body).contains("limit"));
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(20);
    assert!(fault(&interim).contains("interim"));
    let mut chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    chunk.resize(chunk.len() + MOST_LINE + 1, b'1');
    assert!(fault(&chunk).contains("before a chunk"));
}
