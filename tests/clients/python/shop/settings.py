"""TENON_URI names the server."""

import os

from shop.configs import OBJECT_ID

# Only for the test.
SECRET_KEY = "shop"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["testserver"]

USE_TZ = True
TIME_ZONE = "UTC"
DATABASES = {"default": {"ENGINE": "django_mongodb_backend", "HOST": os.environ["TENON_URI"], "NAME": "t_django"}}
DATABASE_ROUTERS = ["django_mongodb_backend.routers.MongoRouter"]
DEFAULT_AUTO_FIELD = OBJECT_ID
# Django brings migrations for integers as keys.
MIGRATION_MODULES = {app: f"{app}_migrations" for app in ("admin", "auth", "contenttypes", "shop")}
INSTALLED_APPS = [
    "shop.configs.MongoAdminConfig",
    "shop.configs.MongoAuthConfig",
    "shop.configs.MongoContentTypesConfig",
    "django.contrib.sessions",
    "django.contrib.messages",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
PROCESSORS = [
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {"context_processors": PROCESSORS}}]
STATIC_URL = "static/"
ROOT_URLCONF = "shop.urls"
