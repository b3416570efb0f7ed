package deploycheck

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Chart is a chart of Helm's. Use LoadChart.
type Chart struct{ chart *v2.Chart }

// LoadChart reads a chart's folder.
func LoadChart(folder string) (*Chart, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	return &Chart{chart}, nil
}

// Render renders the chart as `helm template` does, values checked against its schema first.
func (c *Chart) Render(namespace string, values map[string]any) ([]Object, error) {
	release := common.ReleaseOptions{Name: "offramp", Namespace: namespace, Revision: 1, IsInstall: true}
	rendering, err := util.ToRenderValues(c.chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, fmt.Errorf("check the values: %w", err)
	}
	files, err := engine.Render(c.chart, rendering)
	if err != nil {
		return nil, fmt.Errorf("render the chart: %w", err)
	}
	var objects []Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".yaml" {
			continue
		}
		found, err := Decode([]byte("\n" + strings.TrimPrefix(files[name], "---")))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}
