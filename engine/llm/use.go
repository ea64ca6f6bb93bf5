package llm

import "context"

// Use is how requests ask a server for a model, or for an adapter of it.
type Use struct {
	Model  string
	Fields map[string]any // of Request
}

// weight is what a request to llama-server gives an adapter.
type weight struct {
	ID    int     `json:"id"`
	Scale float64 `json:"scale"`
}

// Using is how requests ask for a model as it is (nil), or with an adapter. Where adapters
// have weights each request says them: those of the server are not relied on.
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

// weights are 1 for an adapter (nil: none), and 0 for all others.
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
