package live

import (
	"net/http"

	"inferplan/formats/served"
)

// View makes the page of a state for people.
type View struct {
	Render func(*served.State) ([]byte, error)
	// SecurityPolicy is the Content-Security-Policy under which the page works.
	SecurityPolicy string
}

// AddPages adds the page of a server at / and its state as JSON at /live.json. Without a view there is only the JSON.
func AddPages(mux *http.ServeMux, s *Sampler, view *View) {
	mux.HandleFunc("GET /live.json", func(w http.ResponseWriter, _ *http.Request) {
		data, err := s.JSON()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		send(w, "application/json", data)
	})
	if view == nil {
		return
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		page, err := s.Page(view.Render)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Security-Policy", view.SecurityPolicy)
		send(w, "text/html; charset=utf-8", page)
	})
}

// send writes an answer that nothing stores.
func send(w http.ResponseWriter, contentType string, data []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // a client that has gone needs no answer
}
