//! The pages for people: documentation and problems.

use http::Method;
use latchgate::http::ProblemCode;

use super::service::Service;

#[tokio::test]
async fn every_problem_is_explained_at_its_path() {
    let service = Service::start();
    for code in ProblemCode::ALL {
        let path = format!("/problems/{}", code.as_str());
        let json = service.get(&path).await;
        assert_eq!(json.status, 200, "{path}");
        assert_eq!(json.json()["code"], code.as_str());
        assert_eq!(json.json()["status"], code.status().as_u16());
        assert_eq!(json.json()["title"], code.title());
        // A browser is told the same.
        let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
        let seen = service.ask(Method::GET, &path, &browser, "").await;
        assert_eq!(seen.body, json.body);
    }
    let missing = service.get("/problems/nope").await;
    assert_eq!(missing.problem(), (404, "not-found".to_owned()));
}

#[tokio::test]
async fn the_documentation_page_loads_all_its_parts_from_here_and_nothing_from_elsewhere() {
    let service = Service::start();
    let page = service.get("/docs").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(
        page.header("content-security-policy")
            .starts_with("default-src 'none'; script-src 'self';")
    );
    let parts = page
        .body
        .split(['"'])
        .filter(|text| text.contains(".js") || text.contains(".css"))
        .collect::<Vec<_>>();
    assert_eq!(parts.len(), 5, "{parts:?}");
    for part in parts {
        assert!(!part.contains("//"), "{part}");
        let answer = service.get(&format!("/{part}")).await;
        assert_eq!(answer.status, 200, "{part}");
        let media = answer.header("content-type");
        assert!(
            ["text/css; charset=utf-8", "text/javascript; charset=utf-8"].contains(&media),
            "{part}: {media}"
        );
    }
    let settings = service.get("/docs/swagger-initializer.js").await.body;
    assert!(
        settings.contains("\"url\": \"/openapi.json\""),
        "{settings}"
    );
    assert!(
        settings.contains("\"validatorUrl\": \"none\""),
        "{settings}"
    );
}

#[tokio::test]
async fn parts_that_do_not_exist_are_404() {
    let service = Service::start();
    for path in [
        "/docs/nope.js",
        "/docs/../Cargo.toml",
        "/docs/%2e%2e/Cargo.toml",
    ] {
        let answer = service.get(path).await;
        assert_eq!(answer.problem(), (404, "not-found".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn whoever_opens_the_gateway_finds_the_way() {
    let service = Service::start();
    insta::assert_json_snapshot!(service.get("/").await.json(), @r#"
    {
      "dashboard": "/dashboard",
      "docs": "/docs",
      "name": "latchgate",
      "openapi": "/openapi.json",
      "version": "0.1.0"
    }
    "#);
}
