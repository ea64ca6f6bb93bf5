package modelfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"inferplan/formats/document"
)

// A file of weights is identified by its size and by this many pieces of this many bytes. Hashing gigabytes
// completely would take longer than loading them.
const pieces, pieceBytes = 256, 4096

// Sample adds to a hash what identifies a file of weights, which a model calls by a name: name, size, and pieces of
// its content at even distances. A file of many gigabytes is not read completely. There are `pieces` pieces of
// pieceBytes each.
func Sample(f *os.File, name string, h hash.Hash) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h.Write(binary.LittleEndian.AppendUint64([]byte(name), uint64(st.Size())))
	data := make([]byte, pieceBytes)
	for k := range int64(pieces) {
		offset := (st.Size() - pieceBytes) / (pieces - 1) * k
		n, err := f.ReadAt(data, max(0, offset))
		if err != nil && err != io.EOF {
			return err
		}
		h.Write(data[:n])
		if offset <= 0 && k == 0 && st.Size() <= pieceBytes {
			break
		}
	}
	return nil
}

// Digest returns the SHA-256 of a model's file, in hexadecimal, and of samples of its files of weights.
func Digest(path string, weights []string) (string, error) {
	if len(weights) == 0 {
		return document.Digest(path)
	}
	h := sha256.New()
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hashing %s: %w", path, err)
	}
	for _, name := range weights {
		w, err := os.Open(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			return "", fmt.Errorf("hashing: %w", err)
		}
		err = Sample(w, name, h)
		w.Close()
		if err != nil {
			return "", fmt.Errorf("hashing %s: %w", w.Name(), err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
