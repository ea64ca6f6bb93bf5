package completions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
)

// file is a file as the store holds it and as clients see it. Its content lies in values of its own, in chunks.
type file struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Bytes   int64  `json:"bytes"`
	Created int64  `json:"created_at"`
	Name    string `json:"filename"`
	Purpose string `json:"purpose"`
	Status  string `json:"status"`
	Owner   string `json:"owner,omitempty"` // removed before clients see it
}

// fileService stores and serves the files that clients have uploaded or batches have written.
type fileService struct {
	opt *Options // the store, the limits, the door and the clock
}

// Prefixes of the keys of files in the store.
const (
	fileKeys  = "file/"         // followed by the id
	chunkKeys = "file-content/" // followed by the id and the number of the chunk
	maxFiles  = 10_000
	// uploadTimeout is the age at which an upload that did not end is deleted.
	uploadTimeout = time.Hour
)

const (
	statusUploading = "uploading"
	statusProcessed = "processed"
)

// chunkKey returns the key of the n-th chunk of a file.
func chunkKey(id string, n int) string { return fmt.Sprintf("%s%s/%06d", chunkKeys, id, n) }

// save stores what is known about a file.
func (f fileService) save(ctx context.Context, m *file) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return f.opt.Store.Put(ctx, fileKeys+m.ID, data)
}

// findFile returns the description (name, size, purpose) of a file that owner has uploaded completely, or that a batch
// of its wrote. Files of other owners and unfinished uploads are not found.
func (f fileService) findFile(ctx context.Context, id, owner string) (*file, error) {
	notFound := httplimit.NotFound("no such file %q", httplimit.Clip(id))
	if durable.CheckKey(fileKeys+id) != nil {
		return nil, notFound
	}
	m, err := readValue[file](ctx, f.opt.Store, fileKeys+id)
	if errors.Is(err, durable.ErrNotFound) || err == nil && (m.Owner != owner || m.Status != statusProcessed) {
		return nil, notFound
	}
	return m, err
}

// readValue returns the value under a key of the store, decoded from JSON. If there is none, it returns
// durable.ErrNotFound.
func readValue[T any](ctx context.Context, s durable.Store, key string) (*T, error) {
	data, err := s.Value(ctx, key)
	if err != nil {
		return nil, err
	}
	value := new(T)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, fmt.Errorf("%s of the store: %w", key, err)
	}
	return value, nil
}

// readAllValues returns all values whose keys in the store begin with a prefix, decoded from JSON. The newest are first:
// ids grow with time, and so do the keys. Values that are deleted in the meantime are left out.
func readAllValues[T any](ctx context.Context, s durable.Store, prefix string) ([]*T, error) {
	keys, err := s.Keys(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var values []*T
	for _, key := range slices.Backward(keys) {
		v, err := readValue[T](ctx, s, key)
		if errors.Is(err, durable.ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// checkSpace returns an error if the files of all owners are as many or take as many bytes as the options allow. It is
// called before an upload.
func (f fileService) checkSpace(ctx context.Context) error {
	list, err := readAllValues[file](ctx, f.opt.Store, fileKeys)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, m := range list {
		total += m.Bytes
	}
	if total >= f.opt.MaxStoredBytes || len(list) >= maxFiles {
		return httplimit.TooLarge("file", "%d files take %d bytes; at most %d files and %d bytes are kept: delete some", len(list), total, maxFiles, f.opt.MaxStoredBytes)
	}
	return nil
}

// fileWriter writes the content of a file into the store, in chunks of durable.MaxValueBytes.
type fileWriter struct {
	files      fileService
	ctx        context.Context
	file       *file
	buf        []byte
	chunkCount int
	maxBytes   int64
}

// createFile stores a new file without content and returns its writer.
func (f fileService) createFile(ctx context.Context, owner, name, purpose string) (*fileWriter, error) {
	m := &file{ID: newID("file-"), Object: "file", Created: f.opt.Now().Unix(), Name: name, Purpose: purpose, Status: statusUploading, Owner: owner}
	return &fileWriter{files: f, ctx: ctx, file: m, buf: make([]byte, 0, durable.MaxValueBytes), maxBytes: 1 << 62}, f.save(ctx, m)
}

// Write adds bytes to a file, which is stored in chunks: each full buffer becomes a value of the store. It returns
// an error if the file becomes longer than maxBytes. It implements io.Writer.
func (c *fileWriter) Write(p []byte) (int, error) {
	if c.file.Bytes += int64(len(p)); c.file.Bytes > c.maxBytes {
		return 0, httplimit.TooLarge("file", "more than %d bytes", c.maxBytes)
	}
	for unwritten := p; len(unwritten) > 0; {
		n := min(len(unwritten), cap(c.buf)-len(c.buf))
		c.buf = append(c.buf, unwritten[:n]...)
		unwritten = unwritten[n:]
		if len(c.buf) == cap(c.buf) {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush stores the buffer as a chunk.
func (c *fileWriter) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.files.opt.Store.Put(c.ctx, chunkKey(c.file.ID, c.chunkCount), c.buf)
	c.chunkCount++
	c.buf = c.buf[:0]
	return err
}

// close stores the last chunk and marks the file as complete. Until then it cannot be read.
func (c *fileWriter) close() error {
	if err := c.flush(); err != nil {
		return err
	}
	c.file.Status = statusProcessed
	return c.files.save(c.ctx, c.file)
}

// contentReader reads the content of a file from the store.
type contentReader struct {
	store     durable.Store
	ctx       context.Context
	id        string
	nextChunk int
	unread    []byte
}

// Read reads the next bytes of a stored file, chunk after chunk. A missing chunk is the end of the file. It
// implements io.Reader.
func (c *contentReader) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		chunk, err := c.store.Value(c.ctx, chunkKey(c.id, c.nextChunk))
		if errors.Is(err, durable.ErrNotFound) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		c.nextChunk, c.unread = c.nextChunk+1, chunk
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// deleteFile deletes a file: first the chunks of its content, then what is known about it, so that an interrupted
// deletion can be repeated.
func (f fileService) deleteFile(ctx context.Context, id string) error {
	keys, err := f.opt.Store.Keys(ctx, chunkKeys+id+"/")
	for _, key := range keys {
		err = errors.Join(err, f.opt.Store.Delete(ctx, key))
	}
	if err != nil {
		return err
	}
	return f.opt.Store.Delete(ctx, fileKeys+id)
}

// upload handles the upload of a file with the requests of a batch, a form with the fields purpose and file. The
// content is stored as it comes, and deleted again if the form is wrong. The answer describes the file.
func (f fileService) upload(req *apiRequest) error {
	if err := req.holder.CountRequest(); err != nil {
		return err
	}
	if err := httplimit.CheckContentType(req.r, "multipart/form-data"); err != nil {
		return err
	}
	if err := f.checkSpace(req.r.Context()); err != nil {
		return err
	}

	// Reserve the memory for one chunk.
	var memoryHold httplimit.MemoryHold
	defer memoryHold.Close()
	memoryHold.Open(f.opt.Door.Budget, req.holder.Client(req.r.RemoteAddr), nil)
	if err := memoryHold.Grow(durable.MaxValueBytes); err != nil {
		return err
	}

	// Read the form. The content is stored as it comes.
	form, err := req.r.MultipartReader()
	if err != nil {
		return httplimit.Invalid("", "expected a form with the fields purpose and file: %v", err)
	}
	var writer *fileWriter
	purpose := ""
	for {
		part, perr := form.NextPart()
		if perr == io.EOF {
			break
		}
		if err = f.readFormPart(req, part, perr, &writer, &purpose); err != nil {
			break
		}
	}

	// Check the form. What was stored of an invalid one is deleted.
	switch {
	case err != nil:
	case writer == nil:
		err = httplimit.Invalid("file", "missing")
	case purpose != "batch":
		err = httplimit.Invalid("purpose", "found %q, expected batch", httplimit.Clip(purpose))
	default:
		err = writer.close()
	}
	if err != nil {
		if writer != nil {
			err = errors.Join(err, f.deleteFile(context.WithoutCancel(req.r.Context()), writer.file.ID))
		}
		return err
	}
	writer.file.Owner = ""
	writeJSON(req.w, http.StatusOK, writer.file)
	return nil
}

// readFormPart reads one part of the multipart form of an upload: the purpose, into *purpose, or the file, whose content
// goes to a new writer, *writer; other parts are skipped. err is the error of finding the part. Each chunk of the file
// gets the full read timeout, so that long uploads are not cut off. After an error the caller deletes what was stored.
func (f fileService) readFormPart(req *apiRequest, part *multipart.Part, err error, writer **fileWriter, purpose *string) error {
	if err != nil {
		return httplimit.Invalid("", "the form was cut off: %v", err)
	}
	switch part.FormName() {
	case "purpose":
		value, err := io.ReadAll(io.LimitReader(part, 64))
		if err != nil {
			return httplimit.Invalid("purpose", "cut off: %v", err)
		}
		*purpose = string(value)
		return nil
	case "file":
	default:
		return nil // other fields, such as expires_after, have no meaning here
	}
	if *writer != nil {
		return httplimit.Invalid("file", "given twice")
	}
	c, err := f.createFile(req.r.Context(), req.holder.Name, clipName(part.FileName()), "batch")
	if err != nil {
		return err
	}
	c.maxBytes = f.opt.MaxFileBytes
	*writer = c
	ctl := http.NewResponseController(req.w)
	for err == nil {
		_ = ctl.SetReadDeadline(time.Now().Add(f.opt.Door.ReadTimeout)) // the writer of a test has no deadlines
		_, err = io.CopyN(c, part, durable.MaxValueBytes)
	}
	var refusal *httplimit.Error
	switch {
	case err == io.EOF:
		return nil
	case errors.As(err, &refusal):
		return refusal
	case req.r.Context().Err() != nil:
		return clientGoneError(req.r.Context().Err())
	}
	return httplimit.Invalid("file", "cut off: %v", err)
}

// clipName shortens the name of a file to what may be stored.
func clipName(name string) string {
	if len(name) > maxNameBytes {
		name = strings.ToValidUTF8(name[:maxNameBytes], "")
	}
	return name
}

// writePage answers with one page of a list that is sorted newest first. The query's limit (20 without one) is the
// length of the page, and after the id of the item before its first; an unknown id selects the first page. idOf returns
// the id of an item, present the form in which clients see it.
func writePage[T any](req *apiRequest, items []*T, idOf func(*T) string, present func(*T) any) error {
	query := req.r.URL.Query()
	limit := 20
	if s := query.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 10_000 {
			return httplimit.Invalid("limit", "found %q, expected 1 to 10000", httplimit.Clip(s))
		}
		limit = n
	}
	if after := query.Get("after"); after != "" {
		index := slices.IndexFunc(items, func(v *T) bool { return idOf(v) == after })
		items = items[index+1:] // if none has this id, the index is -1, and all items are left
	}
	out := list{Object: "list", Data: []any{}, HasMore: len(items) > limit}
	for _, v := range items[:min(limit, len(items))] {
		if out.FirstID == "" {
			out.FirstID = idOf(v)
		}
		out.LastID = idOf(v)
		out.Data = append(out.Data, present(v))
	}
	writeJSON(req.w, http.StatusOK, out)
	return nil
}

// listFiles answers with the sender's files, newest first.
func (f fileService) listFiles(req *apiRequest) error {
	list, err := readAllValues[file](req.r.Context(), f.opt.Store, fileKeys)
	if err != nil {
		return err
	}
	purpose := req.r.URL.Query().Get("purpose")
	list = slices.DeleteFunc(list, func(m *file) bool {
		return m.Owner != req.holder.Name || m.Status != statusProcessed || purpose != "" && m.Purpose != purpose
	})
	return writePage(req, list, func(m *file) string { return m.ID }, func(m *file) any { m.Owner = ""; return m })
}

// getFile answers with one file, without its content.
func (f fileService) getFile(req *apiRequest) error {
	m, err := f.findFile(req.r.Context(), req.r.PathValue("id"), req.holder.Name)
	if err != nil {
		return err
	}
	m.Owner = ""
	writeJSON(req.w, http.StatusOK, m)
	return nil
}

// serveContent answers with the content of a stored file of the sender. Each chunk gets the full StallTimeout, so a
// slow client can read a long file, but one that stops is cut off.
func (f fileService) serveContent(req *apiRequest) error {
	m, err := f.findFile(req.r.Context(), req.r.PathValue("id"), req.holder.Name)
	if err != nil {
		return err
	}
	req.w.Header().Set("Content-Type", "application/octet-stream")
	req.w.Header().Set("Content-Length", strconv.FormatInt(m.Bytes, 10))
	reader := &contentReader{store: f.opt.Store, ctx: req.r.Context(), id: m.ID}
	ctl := http.NewResponseController(req.w)
	for err == nil {
		_ = ctl.SetWriteDeadline(time.Now().Add(f.opt.StallTimeout))
		_, err = io.CopyN(req.w, reader, durable.MaxValueBytes)
	}
	if err != io.EOF {
		return fmt.Errorf("%w: %w", errClientGone, err)
	}
	return nil
}

// removeFile deletes a file of the sender.
func (f fileService) removeFile(req *apiRequest) error {
	m, err := f.findFile(req.r.Context(), req.r.PathValue("id"), req.holder.Name)
	if err == nil {
		err = f.deleteFile(req.r.Context(), m.ID)
	}
	if err != nil {
		return err
	}
	writeJSON(req.w, http.StatusOK, map[string]any{"id": m.ID, "object": "file", "deleted": true})
	return nil
}

// expireFiles deletes files and batches whose retention has ended, and uploads that were broken off. It is called
// from time to time.
func (f fileService) expireFiles(ctx context.Context, now time.Time) error {
	files, err := readAllValues[file](ctx, f.opt.Store, fileKeys)
	for _, m := range files {
		retention := f.opt.FileRetention
		if m.Status == statusUploading {
			retention = uploadTimeout
		}
		if now.Sub(time.Unix(m.Created, 0)) > retention {
			err = errors.Join(err, f.deleteFile(ctx, m.ID))
		}
	}
	batches, berr := readAllValues[batchState](ctx, f.opt.Store, batchKeys)
	for _, b := range batches {
		if now.Sub(time.Unix(b.Created, 0)) > f.opt.FileRetention+maxWindow {
			err = errors.Join(err, f.opt.Store.Delete(ctx, batchKeys+b.ID), f.opt.Store.Delete(ctx, cancelKeys+b.ID))
		}
	}
	return errors.Join(err, berr)
}
