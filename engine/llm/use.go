package llm

import "context"

// Use says how requests name a model, or an adapter of it.
type Use struct {
	Model  string
	Fields map[string]any // additional fields of the request
}

// adapterWeight is the weight of an adapter in a request to llama-server.
type weight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// RequestUse returns how requests ask for a model without an adapter (wanted is nil), or with one. If adapters
// have weights, each request states them all, so that it does not depend on the server's own weights.
func (a Adapters) Using(ctx context.Context, model string, meant *Adapter) (Use, error) {
	switch can := a.server.Can.LoRA; {
	case can == Scaled:
		weights, err := a.weights(ctx, meant)
		return Use{model, map[string]any{"lora": weights}}, err
	case meant == nil:
		return Use{Model: model}, nil
	case can == Beside:
		return Use{model, map[string]any{"lora_path": meant.Name}}, nil
	}
	return Use{Model: meant.Name}, nil
}

// requestWeights returns a weight of 1 for the wanted adapter, if not nil, and of 0 for all others.
func (a Adapters) weights(ctx context.Context, meant *Adapter) ([]weight, error) {
	list, err := a.scaled(ctx)
	if err != nil {
		return nil, err
	}
	weights, found := make([]weight, len(list)), meant == nil
	for i, l := range list {
		weights[i].ID = l.id
		if meant != nil && Scaled.is(l, *meant) {
			found, weights[i].Scale = true, 1
		}
	}
	if !found {
		return nil, a.lacks(*meant, "found %v", shown(list, meant.Path != ""))
	}
	return weights, nil
}
