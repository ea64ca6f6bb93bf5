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

// adapters are those of a server's first model.
type adapters struct {
	s      *Server
	loaded []string
}

// serve adds what a server with adapters answers.
func (a *adapters) serve(mux *http.ServeMux) {
	if len(a.s.opt.Files) > 0 {
		mux.HandleFunc("GET /lora-adapters", func(w http.ResponseWriter, _ *http.Request) {
			var list []map[string]any
			for i, f := range a.s.opt.Files {
				list = append(list, map[string]any{"id": i, "path": f, "scale": 1.0})
			}
			reply(w, list)
		})
	}
	if a.s.opt.Loads && !a.s.opt.Static {
		mux.HandleFunc("POST /v1/load_lora_adapter", a.load)
		mux.HandleFunc("POST /v1/unload_lora_adapter", a.unload)
	}
}

// listed are the entries among the server's models.
func (a *adapters) listed() (out []any) {
	for _, name := range a.loaded {
		out = append(out, map[string]any{"id": name, "object": "model", "root": "/adapters/" + name, "parent": a.s.opt.Models[0]})
	}
	return out
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

func (a *adapters) load(w http.ResponseWriter, r *http.Request) {
	name, file := named(r)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	switch {
	case name == "" || file != "/adapters/"+name:
		refuse(w, http.StatusNotFound, "Loading lora "+name+" failed: No adapter found for "+file)
	case slices.Contains(a.loaded, name):
		refuse(w, http.StatusBadRequest, "The lora adapter '"+name+"' has already been loaded.")
	default:
		a.loaded = append(a.loaded, name)
		a.s.counts.Adapters = append(a.s.counts.Adapters, name)
		reply(w, "Success: LoRA adapter '"+name+"' added successfully.")
	}
}

func (a *adapters) unload(w http.ResponseWriter, r *http.Request) {
	name, _ := named(r)
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	if !slices.Contains(a.loaded, name) {
		refuse(w, http.StatusNotFound, "The lora adapter '"+name+"' cannot be found.")
		return
	}
	a.loaded = slices.DeleteFunc(a.loaded, func(n string) bool { return n == name })
	a.s.counts.Adapters = append(a.s.counts.Adapters, "-"+name)
	reply(w, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// resolve finds what writes the answer: a model, or adapters of it, which have their names
// instead of the model's. The model has to be in memory.
func (a *adapters) resolve(q *question) {
	q.writes = q.Model
	base := a.s.opt.Models[0]
	switch on := a.weighed(q); {
	case slices.Contains(a.loaded, q.Model):
		q.Model = base
	case q.Model == base && len(on) > 0:
		q.writes = strings.Join(on, "+")
	}
}

// weighed are the names of those with a weight. A request that names some gives the others
// none.
func (a *adapters) weighed(q *question) (on []string) {
	for i, f := range a.s.opt.Files {
		at := slices.IndexFunc(q.LoRA, func(w weight) bool { return w.ID == i })
		if q.LoRA == nil || at >= 0 && q.LoRA[at].Scale > 0 {
			on = append(on, strings.TrimSuffix(path.Base(f), path.Ext(f)))
		}
	}
	return on
}
