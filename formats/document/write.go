package document

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// ExistsError is returned when a file exists already, with other content.
type ExistsError struct{ File string }

// Error names the file and says what to do.
func (e *ExistsError) Error() string {
	return fmt.Sprintf("%s: the file exists and differs\n  hint: name it with -o, or use --force to replace it", e.File)
}

// Is makes errors.Is(err, fs.ErrExist) true.
func (e *ExistsError) Is(target error) bool { return target == fs.ErrExist }

// Force allows WriteFile and WriteBytes to replace a file with other content, if it is true.
type Force bool

// FileDocument is a document of which files have another form.
type FileDocument interface {
	// FileForm returns the document that is written.
	FileForm() any
}

// Write validates the document and writes it.
func Write(w io.Writer, doc any) error {
	data, err := marshalValid(doc)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// WriteFile validates the document and writes it to path, completely or not at all. A file with the same bytes is
// left as it is, and changed is false. If the file differs, it returns an *ExistsError unless Force is given.
func WriteFile(path string, doc any, force ...Force) (changed bool, err error) {
	data, err := marshalValid(doc)
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	return WriteBytes(path, data, force...)
}

// marshalValid returns the text of a document in the form that files have. A document that breaks its own rules is
// an error, so that no invalid file is written.
func marshalValid(doc any) ([]byte, error) {
	if v := reflect.ValueOf(doc); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("there is no document (%T)", doc)
	}
	if s, ok := doc.(FileDocument); ok {
		doc = s.FileForm()
	}
	if v, ok := doc.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("refusing to write an invalid document: %w", err)
		}
	}
	return Marshal(doc)
}

// WriteBytes writes a file by the rules of WriteFile: it writes a temporary file in the same folder, flushes it to
// disk, and then renames it. It returns whether the file changed: a file with equal content is left alone. Without
// force, a file with other content is an ExistsError. A pipe, a terminal and standard output (-) are written to
// directly.
func WriteBytes(path string, data []byte, force ...Force) (changed bool, err error) {
	if path == Stdin {
		_, err := os.Stdout.Write(data)
		return true, err
	}
	isForced := slices.Contains(force, true)
	target, mode, exists, err := inspect(path)
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	if exists && !mode.IsRegular() { // a pipe or a terminal, such as /dev/stdout
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return false, fmt.Errorf("writing: %w", err)
		}
		_, err = f.Write(data)
		return true, errors.Join(err, f.Close())
	}

	// Leave an equal file alone, and refuse to replace another without force.
	if exists {
		existing, err := os.ReadFile(target)
		if err != nil {
			return false, fmt.Errorf("comparing with what is there: %w", err)
		}
		if bytes.Equal(existing, data) {
			return false, nil
		}
		if !isForced {
			return false, &ExistsError{File: path}
		}
	}

	// Write a temporary file beside it, give it the name and flush the folder.
	tmp, err := writeTemp(target, data, mode, exists)
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := install(tmp, target, path, isForced); err != nil {
		os.Remove(tmp)
		return false, err
	}
	return true, syncDir(filepath.Dir(target))
}

// inspect returns the file to write for a path, with its mode if it exists. It follows links, so that the file
// behind a link is replaced and not the link.
func inspect(path string) (target string, mode fs.FileMode, exists bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if dest, err := os.Readlink(path); err == nil { // a link to a file that does not exist yet
			if !filepath.IsAbs(dest) {
				dest = filepath.Join(filepath.Dir(path), dest)
			}
			return dest, 0, false, nil
		}
		return path, 0, false, nil
	}
	if err != nil {
		return "", 0, false, err
	}
	if info.IsDir() {
		return "", 0, false, errors.New("it is a folder")
	}
	if target, err = filepath.EvalSymlinks(path); err != nil {
		target = path
	}
	return target, info.Mode(), true, nil
}

// writeTemp writes a temporary file beside target, flushed to disk, and returns its name. With keepMode it has the
// given mode.
func writeTemp(target string, data []byte, mode fs.FileMode, keepMode bool) (name string, err error) {
	var f *os.File
	for range 100 {
		name = filepath.Join(filepath.Dir(target), fmt.Sprintf(".%s.%08x.tmp", filepath.Base(target), rand.Uint32()))
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil && keepMode {
		err = f.Chmod(mode.Perm())
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(name)
		return "", err
	}
	return name, nil
}

// install gives the finished temporary file its name, target. Without force it must not replace a file that appeared
// meanwhile. A hard link guarantees that, where links exist. path is the name for errors.
func install(tmp, target, path string, force bool) error {
	if !force {
		err := os.Link(tmp, target)
		switch {
		case err == nil:
			return os.Remove(tmp)
		case errors.Is(err, fs.ErrExist):
			return &ExistsError{File: path}
		}
	}
	if err := os.Rename(tmp, target); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// syncDir flushes the names in a folder to disk, so that a new file survives a loss of power. File systems that
// cannot do this are left alone.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	_ = d.Sync()
	return d.Close()
}

// Digest returns the SHA-256 of a file's bytes in hexadecimal. For a pipe other than standard input (-) it returns
// an error, because a pipe can be read only once.
func Digest(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	defer f.Close()
	if file, ok := f.(*os.File); ok {
		if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
			return "", &Error{File: path, Found: "a pipe, device or folder", Expected: "a file, which can be read again"}
		}
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
