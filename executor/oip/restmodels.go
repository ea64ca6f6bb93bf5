package oip

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"inferplan/executor/httplimit"
)

type serverMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// metadata returns the metadata of the server.
func (s *HTTPServer) metadata() serverMetadata {
	return serverMetadata{s.core.opt.Name, s.core.opt.Version, Extensions}
}

type tensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

type modelMetadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []tensorMetadata `json:"inputs"`
	Outputs  []tensorMetadata `json:"outputs"`
	Classes  []string         `json:"classes,omitempty"` // an extension: SLO classes that a request may name, the default first
}

// MarshalJSON returns the protocol's model metadata.
func (m *ModelInfo) MarshalJSON() ([]byte, error) {
	list := func(ts []TensorInfo) []tensorMetadata {
		out := make([]tensorMetadata, len(ts))
		for i, t := range ts {
			out[i] = tensorMetadata{t.Name, t.Datatype.String(), append([]int64{}, t.Shape...)}
		}
		return out
	}
	return json.Marshal(modelMetadata{m.Name, m.Versions, m.Platform, list(m.Inputs), list(m.Outputs), m.Classes})
}

// UnmarshalJSON reads the protocol's model metadata, for clients.
func (m *ModelInfo) UnmarshalJSON(b []byte) error {
	var in modelMetadata
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*m = ModelInfo{Name: in.Name, Versions: in.Versions, Platform: in.Platform, Classes: in.Classes}
	for _, l := range []struct {
		from []tensorMetadata
		to   *[]TensorInfo
	}{{in.Inputs, &m.Inputs}, {in.Outputs, &m.Outputs}} {
		for _, t := range l.from {
			dt, ok := ParseDatatype(t.Datatype)
			if !ok {
				return fmt.Errorf("model %q, tensor %q: unknown datatype %q", in.Name, t.Name, t.Datatype)
			}
			*l.to = append(*l.to, TensorInfo{Name: t.Name, Datatype: dt, Shape: t.Shape})
		}
	}
	return nil
}

// writeStatistics answers with the statistics of a model and version, or of all.
func (s *HTTPServer) writeStatistics(w http.ResponseWriter, model, version string) *Error {
	list := s.core.backend.Statistics(model, version)
	if list == nil {
		list = []ModelStatistics{}
	}
	for i := range list {
		if list[i].Batches == nil {
			list[i].Batches = []BatchStats{}
		}
	}
	return s.writeJSON(w, struct {
		Models []ModelStatistics `json:"model_stats"`
	}{list})
}

// modelState is one row of the repository index.
type modelState struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// repositoryIndex returns all models and versions with their states and, if not ready, the reason; with onlyReady only
// those that are ready.
func (c *core) repositoryIndex(onlyReady bool) []modelState {
	rows := []modelState{}
	for _, m := range c.backend.Models().Models() {
		for _, v := range m.Versions {
			row := modelState{Name: m.Name, Version: v, State: "READY"}
			if !c.modelReady(m.Name, v) {
				if onlyReady {
					continue
				}
				row.State, row.Reason = "UNAVAILABLE", "not ready"
				if c.gate.IsClosed() {
					row.Reason = "draining"
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// repositoryIndex answers POST /v2/repository/index with the models and their states.
func (s *HTTPServer) repositoryIndex(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder) *Error {
	if r.Method != http.MethodPost {
		return methodNotAllowed(w, r, http.MethodPost)
	}
	var query struct {
		Repository string `json:"repository_name"`
		Ready      bool   `json:"ready"`
	}

	// Read the body, which is small and may be empty.
	const limit = 64 << 10
	if err := httplimit.CheckBody(r, limit, contentTypes...); err != nil {
		httplimit.CloseIfUnread(w, r)
		return err
	}
	var memoryHold httplimit.MemoryHold
	body, err := s.core.opt.Door.ReadBody(w, r, holder.Client(r.RemoteAddr), &memoryHold, limit)
	if err != nil {
		return err
	}
	defer body.Release()
	if len(body.B) > 0 {
		dec := json.NewDecoder(bytes.NewReader(body.B))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&query); err != nil {
			return httplimit.Invalid("body", "%v", err)
		}
	}
	return s.writeJSON(w, s.core.repositoryIndex(query.Ready))
}
