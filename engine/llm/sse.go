package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventReader reads server-sent events (WHATWG's HTML standard, section 9.2): lines "data: …" up to an empty line.
// Comments and other fields are skipped.
type eventReader struct {
	reader *bufio.Reader
	data   []byte
}

// maxEvent bounds one event, in bytes.
const maxEvent = 4 << 20

var errEventSize = errors.New("an event of more than 4 MiB")

// newEvents returns a reader of the events in a response's body.
func newEvents(in io.Reader) *eventReader {
	return &eventReader{reader: bufio.NewReaderSize(in, 16<<10)}
}

// nextEvent returns the data of the next event, which ends with an empty line. They are valid until the next call.
// At the end of the stream it returns io.EOF. An event that the end cuts off is dropped.
func (e *eventReader) nextEvent() ([]byte, error) {
	e.data = e.data[:0]
	hasData := false
	for {
		line, err := e.nextLine()
		if err != nil {
			return nil, err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && hasData:
			return e.data, nil
		case len(line) == 0:
		case string(name) == "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			hasData = true
			if e.data = append(e.data, value...); len(e.data) > maxEvent {
				return nil, errEventSize
			}
		}
	}
}

// nextLine returns the next line without its end. It is valid until the next call. A line that the end of the stream
// cuts off is dropped, and one of more than maxEvent bytes is an error.
func (e *eventReader) nextLine() ([]byte, error) {
	line, err := e.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) { // the line is longer than the buffer: put its parts together
		assembled := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(assembled) <= maxEvent {
			line, err = e.reader.ReadSlice('\n')
			assembled = append(assembled, line...)
		}
		if len(assembled) > maxEvent {
			return nil, errEventSize
		}
		line = assembled
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}
