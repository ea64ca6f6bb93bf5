package fake

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
)

// weight is that of an adapter, by its place in Options.Files.
type weight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// adapt adds what a server with adapters answers.
func (s *Server) adapt(mux *http.ServeMux) {
	if len(s.opt.Files) > 0 {
		mux.HandleFunc("GET /lora-adapters", func(w http.ResponseWriter, _ *http.Request) {
			var list []map[string]any
			for i, f := range s.opt.Files {
				list = append(list, map[string]any{"id": i, "path": f, "scale": 1.0})
			}
			reply(w, list)
		})
	}
	if s.opt.Loads && !s.opt.Static {
		mux.HandleFunc("POST /v1/load_lora_adapter", s.loadAdapter)
		mux.HandleFunc("POST /v1/unload_lora_adapter", s.unloadAdapter)
	}
}

// named reads which adapter is meant.
func named(r *http.Request) (name, path string) {
	var ask struct {
		Name string `json:"lora_name"`
		Path string `json:"lora_path"`
	}
	if json.NewDecoder(r.Body).Decode(&ask) != nil {
		return "", ""
	}
	return ask.Name, ask.Path
}

func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	name, file := named(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "" || file != "/adapters/"+name:
		refuse(w, http.StatusNotFound, "Loading lora "+name+" failed: No adapter found for "+file)
	case slices.Contains(s.adapters, name):
		refuse(w, http.StatusBadRequest, "The lora adapter '"+name+"' has already been loaded.")
	default:
		s.adapters = append(s.adapters, name)
		s.counts.Adapters = append(s.counts.Adapters, name)
		reply(w, "Success: LoRA adapter '"+name+"' added successfully.")
	}
}

func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	name, _ := named(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.adapters, name) {
		refuse(w, http.StatusNotFound, "The lora adapter '"+name+"' cannot be found.")
		return
	}
	s.adapters = slices.DeleteFunc(s.adapters, func(a string) bool { return a == name })
	s.counts.Adapters = append(s.counts.Adapters, "-"+name)
	reply(w, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// resolve finds what writes the answer: a model, or adapters of it, which have their names
// instead of the model's. The model is what has to be in memory.
func (s *Server) resolve(q *question) {
	q.writes = q.Model
	switch {
	case slices.Contains(s.adapters, q.Model):
		q.Model = s.opt.Models[0]
	case len(s.opt.Files) > 0 && q.Model == s.opt.Models[0]:
		var on []string
		for i, f := range s.opt.Files {
			scale := 1.0
			if q.LoRA != nil { // those that are not named get none
				scale = 0
			}
			for _, w := range q.LoRA {
				if w.ID == i {
					scale = w.Scale
				}
			}
			if scale > 0 {
				on = append(on, strings.TrimSuffix(path.Base(f), path.Ext(f)))
			}
		}
		if len(on) > 0 {
			q.writes = strings.Join(on, "+")
		}
	}
}
