package monitoring

import (
	"encoding/json"
	"os"
)

// Dashboard is what the tests look at of dashboard.json.
type Dashboard struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is one of them.
type Panel struct {
	ID         int             `json:"id"`
	Title      string          `json:"title"`
	Datasource json.RawMessage `json:"datasource"`
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		Expr       string          `json:"expr"`
		Datasource json.RawMessage `json:"datasource"`
	} `json:"targets"`
}

// ReadDashboard reads dashboard.json.
func ReadDashboard() (*Dashboard, error) {
	text, err := os.ReadFile(Folder + "dashboard.json")
	if err != nil {
		return nil, err
	}
	dashboard := &Dashboard{}
	return dashboard, json.Unmarshal(text, dashboard)
}
