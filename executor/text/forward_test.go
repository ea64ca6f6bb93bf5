package text

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"inferplan/engine/llm"
)

// A server that does not say which models it has in memory is gone.
func TestSilentServerIsGone(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer h.Close()
	c, err := llm.New(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []llm.Switch{llm.Router, llm.Sleeper, llm.KeepAlive, llm.Swapper} {
		s := &llm.Server{Client: c, Abilities: llm.Abilities{Switch: kind}}
		if _, err := loadedWithin(t.Context(), 20*time.Millisecond, s); !errors.Is(err, llm.ErrGone) {
			t.Errorf("%v: error %v, expected that it is gone", kind, err)
		}
	}
}
