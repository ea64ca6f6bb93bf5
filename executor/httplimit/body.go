package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// CheckBody checks what the head of a request says about its body: it must have one of the types, no encoding, and at
// most limit bytes.
func CheckBody(r *http.Request, limit int64, types ...string) *Error {
	if err := CheckContentType(r, types...); err != nil {
		return err
	}
	if enc := r.Header["Content-Encoding"]; len(enc) > 0 && !slices.Equal(enc, []string{"identity"}) {
		return &Error{Code: CodeUnsupportedMedia, Reason: "content_encoding", Field: "Content-Encoding",
			Msg: fmt.Sprintf("%q is not taken; send the body as it is", Clip(strings.Join(enc, ", ")))}
	}
	if r.ContentLength > limit {
		return TooLarge("body", "%d bytes, at most %d are taken", r.ContentLength, limit)
	}
	return nil
}

// firstCapacity is the capacity of a body's buffer before its first byte has come. After that it grows with the
// received bytes.
const firstCapacity = 1 << minClass

// ReadBody reads a whole body into a pooled buffer, within the memory for requests. The buffer's memory is booked in
// hold until the buffer is released. If the client is cut off or the body is too large, it returns an error.
func (d *Door) ReadBody(w http.ResponseWriter, r *http.Request, client string, hold *MemoryHold, limit int64) (*Buffer, *Error) {
	length := r.ContentLength
	hold.Open(d.Budget, client, w)
	body := NewBuffer(firstCapacity)
	body.hold = hold
	err := hold.Grow(int64(cap(body.B)))

	// Read until the end. The buffer grows when it is full.
	for err == nil {
		if len(body.B) == cap(body.B) && int64(len(body.B)) != length {
			if err = body.grow(length); err != nil {
				break
			}
		}
		n, readErr := r.Body.Read(body.B[len(body.B):cap(body.B)])
		body.B = body.B[:len(body.B)+n]
		switch {
		case int64(len(body.B)) > limit:
			err = TooLarge("body", "more than %d bytes", limit)
		case readErr == io.EOF || int64(len(body.B)) == length:
			if err = hold.MarkReceived(); err == nil {
				return body, nil
			}
		case readErr != nil:
			if err = hold.MarkReceived(); err == nil {
				err = Invalid("body", "cut off: %v", readErr)
			}
		}
	}

	// The client is refused, and its connection closed if more is to come.
	if err == ErrEvicted {
		w.Header().Set("Connection", "close")
	}
	CloseIfUnread(w, r)
	body.Release()
	return nil, err
}

// grow enlarges the buffer of a body to four times its capacity, at least 64 KiB, but no more than length, the announced
// bytes of the body; -1 stands for unknown. The additional bytes are booked in the hold first. If the budget of memory
// refuses them, it returns the error.
func (b *Buffer) grow(length int64) *Error {
	capacity := max(4*int64(cap(b.B)), 64<<10)
	if length >= 0 {
		capacity = min(capacity, length)
	}
	capacity = int64(pooledCapacity(int(capacity)))
	if err := b.hold.Grow(capacity - int64(cap(b.B))); err != nil {
		return err
	}
	b.resize(int(capacity))
	return nil
}

// TakeBytes returns the bytes of a buffer and releases the buffer. The bytes stay valid, and booked in the hold that
// was given to ReadBody, which the caller closes.
func (b *Buffer) TakeBytes() []byte {
	taken := b.B
	b.hold, b.B, b.class = nil, nil, -1
	b.Release()
	return taken
}
