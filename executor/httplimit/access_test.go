package httplimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"inferplan/executor/httplimit"
)

// written are lines of a log.
type written chan []byte

func (w written) Write(p []byte) (int, error) {
	w <- bytes.Clone(p)
	return len(p), nil
}

// Every request has a line in the log of accesses, refused ones and panics, too, and a
// stream still reaches its connection.
func TestEveryRequestIsInAccessLog(t *testing.T) {
	lines := make(written, 1)
	ring, err := httplimit.NewKeyring(httplimit.Key{Token: "0123456789abcdef", Name: "team"})
	if err != nil {
		t.Fatal(err)
	}
	door := (&httplimit.Door{Keys: ring, Log: slog.New(slog.DiscardHandler), Access: slog.New(slog.NewJSONHandler(lines, nil))}).WithDefaults()
	refuse := func(w http.ResponseWriter, err error) { w.WriteHeader(httplimit.AsError(err).Code.HTTPStatus()) }
	serve := door.Handler(refuse, func(w http.ResponseWriter, r *http.Request, _ *httplimit.Holder) error {
		switch r.URL.Path {
		case "/panic":
			panic("x")
		case "/fail":
			return errors.New("x")
		}
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		_, err := w.Write([]byte("hello"))
		return err
	})
	s := httptest.NewServer(serve)
	defer s.Close()
	for _, c := range []struct {
		path, token, client string
		status, bytes       int
	}{
		{"/", "0123456789abcdef", "team", 200, 5}, {"/", "wrong", "127.0.0.1", 401, 0}, {"/panic", "0123456789abcdef", "team", 500, 0}, {"/fail", "0123456789abcdef", "team", 500, 0},
	} {
		r, _ := http.NewRequest("GET", s.URL+c.path, nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		text := <-lines // it is written behind the answer
		var line struct {
			What, Client  string
			Status, Bytes int
		}
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line.What != "GET "+c.path || line.Client != c.client || line.Status != c.status || line.Bytes != c.bytes {
			t.Errorf("%+v, expected %+v", line, c)
		}
	}
}
