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
	f, err := os.Stdin, error(nil)
	if path != document.Stdin {
		f, err = os.Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no log %s\n  hint: plan simulate --event-log %s makes one, and so does plan serve", path, path)
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(&document.Error{File: path, Found: "a folder", Expected: "an event log"}, f.Close())
	}
	r := bufio.NewReader(f)
	if magic, _ := r.Peek(2); string(magic) != "\x1f\x8b" {
		return logFile{r, f}, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, errors.Join(&document.Error{File: path, Found: "a gzip file that cannot be unpacked: its beginning is damaged or cut off"}, f.Close())
	}
	return logFile{z, f}, nil
}
