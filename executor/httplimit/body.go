package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// CheckBody looks at what the head of a request says of its body: one of the types of
// its protocol, as it is, and of at most limit bytes.
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

// firstRoom is what a body gets before its first byte has come; from then on
// the room grows with the bytes that came.
const firstRoom = 1 << minClass

// ReadBody reads a body whole into a pooled buffer, within the memory for requests. The
// buffer holds its share of it, in hold, until it is released.
func (d *Door) ReadBody(w http.ResponseWriter, r *http.Request, client string, hold *Hold, limit int64) (*Buffer, *Error) {
	length := r.ContentLength
	hold.Open(d.Budget, client, w)
	body := NewBuffer(firstRoom)
	body.hold = hold
	err := hold.Grow(int64(cap(body.B)))
	for err == nil {
		if len(body.B) == cap(body.B) && int64(len(body.B)) != length {
			if err = body.widen(length); err != nil {
				break
			}
		}
		n, rerr := r.Body.Read(body.B[len(body.B):cap(body.B)])
		body.B = body.B[:len(body.B)+n]
		switch {
		case int64(len(body.B)) > limit:
			err = TooLarge("body", "more than %d bytes", limit)
		case rerr == io.EOF || int64(len(body.B)) == length:
			if err = hold.Whole(); err == nil {
				return body, nil
			}
		case rerr != nil:
			if err = hold.Whole(); err == nil {
				err = Invalid("body", "cut off: %v", rerr)
			}
		}
	}
	if err == ErrEvicted {
		w.Header().Set("Connection", "close")
	}
	Unread(w, r)
	body.Release()
	return nil, err
}

// widen makes room for what comes next: four times as much, 64 KiB at least,
// but not more than the length that was announced, where one was.
func (b *Buffer) widen(length int64) *Error {
	room := max(4*int64(cap(b.B)), 64<<10)
	if length >= 0 {
		room = min(room, length)
	}
	room = int64(roundUp(int(room)))
	if err := b.hold.Grow(room - int64(cap(b.B))); err != nil {
		return err
	}
	b.resize(int(room))
	return nil
}

// Own takes the bytes out of a buffer that is held once. They stay valid, and booked in
// the hold that ReadBody was given, which is the caller's to close.
func (b *Buffer) Own() []byte {
	out := b.B
	b.hold, b.B, b.class = nil, nil, -1
	b.Release()
	return out
}
