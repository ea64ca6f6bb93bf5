package completions

import (
	"cmp"
	"fmt"
	"net/http"

	"inferplan/executor/httplimit"
)

// modelListing is a model in the form of the protocol.
type modelListing struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	OwnedBy string   `json:"owned_by"`
	Classes []string `json:"slo_classes,omitempty"` // an extension of ours
}

// listing returns the model in the form of the protocol.
func (m *Model) listing() modelListing {
	out := modelListing{m.ID, "model", m.Created.Unix(), m.OwnedBy, m.Classes}
	if m.Created.IsZero() {
		out.Created = 0
	}
	out.OwnedBy = cmp.Or(out.OwnedBy, "inferplan")
	return out
}

// list is a list in the form of the protocol.
type list struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	FirstID string `json:"first_id,omitempty"`
	LastID  string `json:"last_id,omitempty"`
	HasMore bool   `json:"has_more"`
}

// listModels answers with all models.
func (f *apiHandlers) listModels(req *apiRequest) error {
	out := list{Object: "list", Data: []any{}}
	for _, m := range f.front.opt.Server.Models() {
		out.Data = append(out.Data, m.listing())
	}
	writeJSON(req.w, http.StatusOK, out)
	return nil
}

// getModel answers with the model whose id is in the path.
func (f *apiHandlers) getModel(req *apiRequest) error {
	id := req.r.PathValue("id")
	for _, m := range f.front.opt.Server.Models() {
		if m.ID == id {
			writeJSON(req.w, http.StatusOK, m.listing())
			return nil
		}
	}
	return &httplimit.Error{Code: httplimit.CodeNotFound, Reason: "model_not_found", Field: "model", Msg: fmt.Sprintf("model %q is not served here", httplimit.Clip(id))}
}
