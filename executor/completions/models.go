package completions

import (
	"fmt"
	"net/http"

	"inferplan/executor/httplimit"
)

// listed is a model as the protocol lists it.
type listed struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	OwnedBy string   `json:"owned_by"`
	Context int      `json:"max_model_len,omitempty"` // as vLLM has it
	Classes []string `json:"slo_classes,omitempty"`   // ours
}

func (m *Model) listed() listed {
	out := listed{m.ID, "model", m.Created.Unix(), m.OwnedBy, m.ContextTokens, m.Classes}
	if m.Created.IsZero() {
		out.Created = 0
	}
	set(&out.OwnedBy, "inferplan")
	return out
}

// list is a list of the protocol.
type list struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	First   string `json:"first_id,omitempty"`
	Last    string `json:"last_id,omitempty"`
	HasMore bool   `json:"has_more"`
}

func (f *api) models(x *inside) error {
	out := list{Object: "list", Data: []any{}}
	for _, m := range f.opt.Server.Models() {
		out.Data = append(out.Data, m.listed())
	}
	answer(x.w, http.StatusOK, out)
	return nil
}

func (f *api) model(x *inside) error {
	id := x.r.PathValue("id")
	for _, m := range f.opt.Server.Models() {
		if m.ID == id {
			answer(x.w, http.StatusOK, m.listed())
			return nil
		}
	}
	return &httplimit.Error{Code: httplimit.CodeNotFound, Reason: "model_not_found", Field: "model", Msg: fmt.Sprintf("model %q is not served here", httplimit.Clip(id))}
}
