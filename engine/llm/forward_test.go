package llm

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What is forwarded reaches the server byte for byte.
func TestForwardedBodyIsAsItWas(t *testing.T) {
	const body = `{"input" : "<&>", "n":1.0}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, _ := io.ReadAll(r.Body); string(got) != body || r.ContentLength != int64(len(body)) {
			t.Errorf("found %s of length %d, expected %s", got, r.ContentLength, body)
		}
	}))
	defer srv.Close()
	c, err := New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Forward(t.Context(), "/v1/embeddings", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
