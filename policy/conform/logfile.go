package conform

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"inferplan/formats/document"
)

// logFile is an open log. If the file is compressed with gzip, whatever its name, it is decompressed.
type logFile struct {
	io.Reader
	io.Closer
}

// OpenLogFile opens the file of an event log, plain or packed with gzip.
func OpenLogFile(path string) (io.ReadCloser, error) {
	file, err := os.Stdin, error(nil)
	if path != document.Stdin {
		file, err = os.Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no log %s\n  hint: plan simulate --event-log %s makes one, and so does plan serve", path, path)
	}
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(&document.Error{File: path, Found: "a folder", Expected: "an event log"}, file.Close())
	}
	buffered := bufio.NewReader(file)
	if magic, _ := buffered.Peek(2); string(magic) != "\x1f\x8b" {
		return logFile{buffered, file}, nil
	}
	unpacked, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, errors.Join(&document.Error{File: path, Found: "a gzip file that cannot be unpacked: its beginning is damaged or cut off"}, file.Close())
	}
	return logFile{unpacked, file}, nil
}
