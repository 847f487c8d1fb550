//! Arrow IPC, file or stream, with every length checked against the file before anything is allocated for it.
//!
//! ```text
//! file    ARROW1 padding | stream | footer | footer length (i32) | ARROW1
//! stream  messages: ff ff ff ff | metadata length (i32) | metadata | body; a length of 0 ends it
//! ```
//!
//! A file is read as the stream inside it, so that both forms share one path. Arrow's own readers take lengths as
//! they stand in the file, and a wrong one ends the process in the allocator.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use arrow::buffer::MutableBuffer;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{RecordBatch as Layout, root_as_message};
use arrow::record_batch::RecordBatch;

/// The mark at both ends of an IPC file.
const MARK: &[u8; 6] = b"ARROW1";

/// The most bytes that one compressed buffer may become: 2 GiB, which is also the most that 32-bit offsets reach.
const BUFFER_LIMIT: i64 = i32::MAX as i64;

/// The batches of an IPC file or stream.
pub(super) struct IpcBatches {
    reader: BufReader<File>,
    left: u64,
    decoder: StreamDecoder,
    has_ended: bool,
}

fn malformed(reason: impl Into<String>) -> ArrowError {
    ArrowError::IpcError(reason.into())
}

impl IpcBatches {
    /// Opens a file whose mark says what it is.
    pub(super) fn new(mut file: File) -> Result<Self, ArrowError> {
        let length = file.seek(SeekFrom::End(0))?;
        let mut mark = [0; MARK.len()];
        file.seek(SeekFrom::Start(0))?;
        let is_file = length >= 18 && file.read_exact(&mut mark).is_ok() && &mark == MARK;
        let (start, end) =
            if is_file { (stream_start(&mut file)?, footer_start(&mut file, length)?) } else { (0, length) };
        file.seek(SeekFrom::Start(start))?;
        let left = end.saturating_sub(start);
        Ok(Self { reader: BufReader::new(file), left, decoder: StreamDecoder::new(), has_ended: false })
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, ArrowError> {
        if count > self.left {
            return Err(malformed(format!("a length of {count} bytes where {} are left", self.left)));
        }
        self.left -= count;
        let mut bytes = Vec::new();
        (&mut self.reader).take(count).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != count {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }

    fn length(&mut self) -> Result<i32, ArrowError> {
        let bytes = self.bytes(4)?;
        Ok(bytes.first_chunk().copied().map_or(0, i32::from_le_bytes))
    }

    /// Reads the next batch, or none at the end.
    fn batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        while self.left > 0 {
            // Before version 0.15 the marker of four ff bytes was missing.
            let first = self.length()?;
            let length = if first == -1 { self.length()? } else { first };
            if length == 0 {
                break;
            }
            let length = u64::try_from(length).map_err(|_negative| malformed("a negative length"))?;
            let metadata = self.bytes(length)?;
            let message = root_as_message(&metadata).map_err(|error| malformed(error.to_string()))?;
            let body = u64::try_from(message.bodyLength()).map_err(|_negative| malformed("a negative length"))?;
            let body = self.bytes(body)?;
            let layout = message
                .header_as_record_batch()
                .or_else(|| message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data()));
            check(layout, &body)?;
            if let Some(batch) = self.decode(&metadata, &body)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn decode(&mut self, metadata: &[u8], body: &[u8]) -> Result<Option<RecordBatch>, ArrowError> {
        let length = i32::try_from(metadata.len()).map_err(|_too_long| malformed("a length beyond int32"))?;
        let mut frame = MutableBuffer::new(8 + metadata.len() + body.len());
        frame.extend_from_slice(&[0xff_u8; 4]);
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(metadata);
        frame.extend_from_slice(body);
        let mut frame = frame.into();
        self.decoder.decode(&mut frame)
    }
}

/// Returns where the stream inside a file starts: writers pad the mark to 8 bytes, or to the alignment of buffers.
fn stream_start(file: &mut File) -> Result<u64, ArrowError> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(1024).read_to_end(&mut start)?;
    let padding = start.iter().skip(MARK.len()).take_while(|&&byte| byte == 0).count();
    Ok((MARK.len() + padding) as u64 / 8 * 8)
}

/// Returns where the footer of a file starts, which is where its stream ends.
fn footer_start(file: &mut File, length: u64) -> Result<u64, ArrowError> {
    let mut tail = [0; 10];
    file.seek(SeekFrom::Start(length - 10))?;
    file.read_exact(&mut tail)?;
    let footer = tail.first_chunk().copied().map_or(0, i32::from_le_bytes);
    let start = u64::try_from(footer).ok().and_then(|footer| (length - 10).checked_sub(footer));
    match start {
        Some(start) if tail.ends_with(MARK) && start >= 8 => Ok(start),
        _ => Err(malformed("a file without its footer, perhaps cut short")),
    }
}

/// Checks that the buffers of a message lie in its body, and what compressed ones say they become.
fn check(layout: Option<Layout<'_>>, body: &[u8]) -> Result<(), ArrowError> {
    let Some(layout) = layout else { return Ok(()) };
    for buffer in layout.buffers().iter().flatten() {
        let offset = usize::try_from(buffer.offset()).ok();
        let end = usize::try_from(buffer.length()).ok().zip(offset).and_then(|(length, at)| length.checked_add(at));
        let bytes = offset.zip(end).and_then(|(start, end)| body.get(start..end));
        let Some(bytes) = bytes else {
            return Err(malformed("a buffer outside its message"));
        };
        let size = bytes.first_chunk().copied().map_or(0, i64::from_le_bytes);
        if layout.compression().is_some() && size > BUFFER_LIMIT {
            return Err(malformed(format!("a compressed buffer beyond the limit of {BUFFER_LIMIT} bytes")));
        }
    }
    Ok(())
}

impl Iterator for IpcBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let batch = self.batch().transpose();
        self.has_ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}
