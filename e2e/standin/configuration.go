package main

// configuration is the answer at /configz, in the shape that kube-proxy 1.36 and later give: the v1alpha1
// KubeProxyConfiguration with its defaults (pkg/proxy/apis/config/v1alpha1/defaults.go). Captures have no such answer, so
// all but the mode, the scheduler and strictARP of the captured node (LAB.md) are the defaults.
func configuration(mode string) map[string]any {
	return map[string]any{"kubeproxy.config.k8s.io": map[string]any{
		"kind": "KubeProxyConfiguration", "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
		"mode": mode, "bindAddress": "0.0.0.0", "bindAddressHardFail": false,
		"healthzBindAddress": "0.0.0.0:10256", "metricsBindAddress": "127.0.0.1:10249",
		"clusterCIDR": "", "configSyncPeriod": "15m0s", "detectLocalMode": "ClusterCIDR", "enableProfiling": false,
		"hostnameOverride": "", "nodePortAddresses": nil, "oomScoreAdj": -999, "portRange": "", "showHiddenMetricsForVersion": "",
		"clientConnection": map[string]any{"kubeconfig": "", "acceptContentTypes": "", "contentType": "application/vnd.kubernetes.protobuf", "qps": 5, "burst": 10},
		"conntrack": map[string]any{
			"maxPerCore": 32768, "min": 131072, "tcpEstablishedTimeout": "24h0m0s", "tcpCloseWaitTimeout": "1h0m0s",
			"tcpBeLiberal": false, "udpTimeout": "0s", "udpStreamTimeout": "0s",
		},
		"detectLocal": map[string]any{"bridgeInterface": "", "interfaceNamePrefix": ""},
		"iptables":    map[string]any{"masqueradeBit": 14, "masqueradeAll": false, "localhostNodePorts": true, "syncPeriod": "30s", "minSyncPeriod": "1s"},
		"ipvs": map[string]any{
			"syncPeriod": "30s", "minSyncPeriod": "0s", "scheduler": "lc", "excludeCIDRs": nil, "strictARP": true,
			"tcpTimeout": "0s", "tcpFinTimeout": "0s", "udpTimeout": "0s",
		},
		"nftables": map[string]any{"masqueradeBit": 14, "masqueradeAll": false, "syncPeriod": "30s", "minSyncPeriod": "1s"},
		"winkernel": map[string]any{
			"networkName": "", "sourceVip": "", "enableDSR": false, "rootHnsEndpointName": "", "forwardHealthCheckVip": false,
		},
	}}
}
