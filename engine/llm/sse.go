package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventReader reads server-sent events (WHATWG's HTML standard, section 9.2): lines "data: …" up to an empty line.
// Comments and other fields are skipped.
type events struct {
	in   *bufio.Reader
	data []byte
}

// maxEvent bounds one event, in bytes.
const maxEvent = 4 << 20

var errEventSize = errors.New("an event of more than 4 MiB")

func newEvents(in io.Reader) *events { return &events{in: bufio.NewReaderSize(in, 16<<10)} }

// nextEvent returns the data of the next event, which is valid until the next call. At the end of the stream it
// returns io.EOF. An event that the end cuts off is dropped.
func (e *events) next() ([]byte, error) {
	e.data = e.data[:0]
	found := false
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && found:
			return e.data, nil
		case len(line) == 0:
		case string(name) == "data":
			if found {
				e.data = append(e.data, '\n')
			}
			found = true
			if e.data = append(e.data, value...); len(e.data) > maxEvent {
				return nil, errEventSize
			}
		}
	}
}

// nextLine returns the next line without its end.
func (e *events) line() ([]byte, error) {
	line, err := e.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxEvent {
			line, err = e.in.ReadSlice('\n')
			long = append(long, line...)
		}
		if len(long) > maxEvent {
			return nil, errEventSize
		}
		line = long
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}
